"""Tiny random models and in-memory tokenizers for tests: nothing is downloaded, everything is seeded."""

from __future__ import annotations

import torch
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

CHATML = (
    "{% if messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}{% endif %}"
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""ChatML with a default system line (Qwen2.5's shape)."""

LLAMA3 = (
    "{% for message in messages %}"
    "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'"
    " + message['content'] | trim + '<|eot_id|>' %}"
    "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
)
"""Llama 3: a BOS token first, contents trimmed, `<|eot_id|>` after each turn with no newline."""

QWEN3 = (
    "{% set ns = namespace(last_query=-1) %}"
    "{% for message in messages %}{% if message['role'] == 'user' %}{% set ns.last_query = loop.index0 %}"
    "{% endif %}{% endfor %}"
    "{% for message in messages %}{% set content = message['content'] %}"
    "{% if message['role'] == 'assistant' %}{% set thought = '' %}"
    "{% if '</think>' in content %}"
    "{% set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}"
    "{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
    "{% if loop.index0 > ns.last_query and (loop.last or thought) %}"
    "{{ '<|im_start|>assistant\\n<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content }}"
    "{% else %}{{ '<|im_start|>assistant\\n' + content }}{% endif %}{{ '<|im_end|>\\n' }}"
    "{% else %}{{ '<|im_start|>' + message['role'] + '\\n' + content + '<|im_end|>\\n' }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""Strips the thinking of every assistant turn before the last user message (Qwen3's shape): history is rewritten."""

SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}"
    "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""SmolLM2-Instruct's own template."""

TEMPLATES = {"chatml": CHATML, "llama3": LLAMA3, "qwen3": QWEN3, "smollm2": SMOLLM2}

SPECIALS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|begin_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
)
"""Special tokens, with ids 0 to 6."""

MERGES = (("t", "h"), ("th", "e"), ("i", "n"), ("Ġ", "the"), ("o", "n"), ("A", "c"), ("Ac", "t"), ("i", "on"))
"""A few merges, so that sampled ids need not be the ids that their text encodes to."""


def byte_tokenizer(chat_template: str = CHATML) -> PreTrainedTokenizerFast:
    """A byte-level BPE over all 256 bytes and `MERGES`: encodes any text, decodes to it exactly.

    The end token is `<|eot_id|>` for `LLAMA3` and `<|im_end|>` otherwise; the vocabulary has 271 entries.
    """
    vocab = {token: i for i, token in enumerate(SPECIALS)}
    for token in [*sorted(pre_tokenizers.ByteLevel.alphabet()), *(a + b for a, b in MERGES)]:
        vocab[token] = len(vocab)
    tokenizer = Tokenizer(BPE(vocab=vocab, merges=list(MERGES)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIALS])
    llama = "begin_of_text" in chat_template or "<|eot_id|>" in chat_template
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|begin_of_text|>" if llama else "<|im_start|>",
        eos_token="<|eot_id|>" if llama else "<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=chat_template,
        clean_up_tokenization_spaces=False,
    )


def tiny_llama(
    vocab: int = 271, layers: int = 2, hidden: int = 32, seed: int = 0, context: int = 512
) -> PreTrainedModel:
    """A random fp32 Llama with four heads of its own keys and values; weights depend on the arguments alone."""
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        initializer_range=0.15,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    return _seeded(LlamaForCausalLM, config, seed)


def tiny_qwen2(
    vocab: int = 271, layers: int = 2, hidden: int = 32, seed: int = 0, context: int = 512
) -> PreTrainedModel:
    """A random fp32 Qwen2 with four query heads on two key-value heads (grouped attention, biases, untied head)."""
    config = Qwen2Config(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context,
        tie_word_embeddings=False,
        initializer_range=0.15,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    return _seeded(Qwen2ForCausalLM, config, seed)


def _seeded(cls: type[PreTrainedModel], config: LlamaConfig | Qwen2Config, seed: int) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return cls(config).eval()
