"""Chat templates beside those of `tests.models`: the shapes of other model families, for the renderer's proof."""

from __future__ import annotations

from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

from tests.models import QWEN3, byte_tokenizer

GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{{ '<start_of_turn>' + ('model' if m['role'] == 'assistant' else m['role']) + '\\n' }}"
    "{{ m['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
)
"""No system role, strict alternation, contents trimmed."""

MISTRAL = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}{{ '[INST] ' + m['content'] + ' [/INST]' }}"
    "{% else %}{{ ' ' + m['content'] + eos_token }}{% endif %}{% endfor %}"
)
"""No generation prompt: a completion begins with a space."""

PHI3 = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>\\n' + m['content'] + '<|end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)
"""Control tokens that swallow the white space after them."""

R1 = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}<|User|>{{ m.content }}"
    "{% elif m.role == 'system' %}{{ m.content }}{% else %}"
    "<|Assistant|>{{ m.content.split('</think>')[-1] }}<|eos|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|Assistant|><think>\n{% endif %}"
)
"""The generation prompt opens a thought that history does not keep: every turn is rewritten."""

NO_THINKING = QWEN3.replace(
    "{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "{{ '<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n' }}{% endif %}",
)
"""Qwen3 told not to think: an empty thought in the generation prompt alone."""

LLAMA2 = (
    "{% for m in messages %}{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + m['content'] + ' [/INST]' }}"
    "{% else %}{{ ' ' + m['content'] + ' ' + eos_token }}{% endif %}{% endfor %}"
)
"""A space before the end token: what was sampled cannot be what the template writes."""


def tokenizer(template: str) -> PreTrainedTokenizerFast:
    """The byte tokenizer with the control tokens that `template` uses."""
    found = byte_tokenizer(template)
    swallow = template == PHI3
    names = (
        "start_of_turn",
        "end_of_turn",
        "|user|",
        "|assistant|",
        "|system|",
        "|end|",
        "|User|",
        "|Assistant|",
        "|eos|",
    )
    special = [f"<{name}>" for name in names if f"<{name}>" in template or swallow]
    found.add_special_tokens(
        {"additional_special_tokens": [AddedToken(t, rstrip=swallow, special=True, normalized=False) for t in special]}
    )
    if template == R1:
        found.add_tokens(["<think>", "</think>"])
    return found
