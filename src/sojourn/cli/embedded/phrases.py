"""A vocabulary learnt from text: words, and phrases that recur within a line, as one token each.

Phrases grow by byte-pair encoding (Sennrich et al. 2016) over whole words instead of characters: a token never ends
inside a name, what every room says costs few tokens, and what is rare is spelled in words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from tokenizers import Tokenizer, models, trainers

_LINE = re.compile(r"\n?[^\n]*")
_WORD = re.compile(r"\s*\w+|\s*[^\w\s]|\s+")
"""A word takes the white space before it along; marks stand alone."""
_PRIVATE = range(0xF0000, 0xFFFFE)
"""A plane of characters that stand for nothing: each is a word to the byte-pair encoder."""


def phrases(texts: Iterable[str], size: int, *, words: int = 2, often: int = 10) -> list[str]:
    """The words that occur at least `words` times and phrases that occur `often`: `size` in all, or fewer.

    Where there are more words than `size`, the rarest are left out and there are no phrases.
    """
    lines = [_WORD.findall(line) for text in texts for line in _LINE.findall(text)]
    counts = Counter(word for line in lines for word in line)
    known = [word for word, count in counts.most_common(min(size, len(_PRIVATE))) if count >= words]
    letters = {word: chr(_PRIVATE[i]) for i, word in enumerate(known)}
    trainer = trainers.BpeTrainer(vocab_size=size, min_frequency=often, show_progress=False)
    core = Tokenizer(models.BPE())
    core.train_from_iterator((run for line in lines for run in _runs(line, letters)), trainer)
    back = dict(zip(letters.values(), letters, strict=True))
    found = sorted(core.get_vocab().items(), key=lambda entry: entry[1])
    return ["".join(back[letter] for letter in token) for token, _ in found]


def _runs(line: Iterable[str], letters: Mapping[str, str]) -> Iterator[str]:
    """A line in letters, cut where a word has none."""
    spelled = "".join(letters.get(word, "\n") for word in line)
    yield from filter(None, spelled.split("\n"))
