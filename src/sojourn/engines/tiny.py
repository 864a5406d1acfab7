"""The embedded policy: a small `LlamaForCausalLM` and one lossless tokenizer made from the environments' own text.

The tokenizer is a Unigram model whose pieces are whole names (`" acacia planks"`, `" red ball"`), so that a turn costs
few tokens; bytes catch everything else. The weights start with previous-token and match-and-copy heads ("induction
heads", Olsson et al. 2022), without which so small a model takes very long to learn to look a recipe up.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import cast

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

PAD, USER, ASSISTANT, END = "<|pad|>", "<|user|>", "<|assistant|>", "<|end|>"

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message['role'] == 'assistant' -%}<|assistant|>{{ message['content'] }}<|end|>"
    "{%- else -%}<|user|>{{ ' ' + message['content'] }}{%- endif -%}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)
"""ChatML's roles with one token each; a user's turn needs no end token, since a role token follows it."""

INITIAL_STD = 0.07
ROPE_THETA = 1e6


def build_tokenizer(pieces: Iterable[str]) -> PreTrainedTokenizerFast:
    """A tokenizer in which each of `pieces` is one token, and any other text falls back to characters and bytes."""
    specials = [PAD, USER, ASSISTANT, END]
    scored = dict.fromkeys(specials, 0.0)
    scored |= {f"<0x{byte:02X}>": -20.0 for byte in range(256)}
    scored |= dict.fromkeys(["\n", *(chr(code) for code in range(32, 127))], -4.0)
    scored |= {piece: -1.0 for piece in pieces if len(piece) > 1}
    core = Tokenizer(models.Unigram(list(scored.items()), unk_id=0, byte_fallback=True))
    core.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    core.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in specials])
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=core, pad_token=PAD, eos_token=END, clean_up_tokenization_spaces=False
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def build_model(
    vocab_size: int, *, hidden: int = 128, layers: int = 4, heads: int = 4, inner: int = 320, seed: int = 0
) -> LlamaForCausalLM:
    """A fresh policy with tied embeddings and induction heads in its first two layers."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=3,
        initializer_range=INITIAL_STD,
        rope_parameters={"rope_type": "default", "rope_theta": ROPE_THETA},
    )
    model = LlamaForCausalLM(config)
    _induction_init(model, torch.Generator().manual_seed(seed))
    return model


@torch.no_grad()
def _induction_init(model: LlamaForCausalLM, generator: torch.Generator) -> None:
    """Write heads that attend to the previous token (layer 0) and to what followed an equal token (layer 1).

    Every embedding shares one constant coordinate. Layer 0's queries and keys read only that, so their match depends
    on distance alone and peaks at 1; its values carry a random rotation of the previous token into the residual stream.
    Layer 1 compares the present token with that rotation, in RoPE's slow coordinates, where distance hardly counts.
    """
    width = model.config.hidden_size
    heads = model.config.num_attention_heads
    size = width // heads

    def orthogonal() -> Tensor:
        q, _ = torch.linalg.qr(torch.randn(width, width, generator=generator))
        return cast(Tensor, q)

    embedding = model.model.embed_tokens.weight
    embedding.copy_(torch.randn(embedding.shape, generator=generator) * INITIAL_STD)
    embedding[:, 0] = 0.5
    frequency = 1.0 / (ROPE_THETA ** (torch.arange(0, size, 2).float() / size))
    angle = torch.cat([frequency, frequency])
    first, second = model.model.layers[0].self_attn, model.model.layers[1].self_attn
    carry_in, carry_out, probe, copy = orthogonal(), orthogonal(), orthogonal(), orthogonal()
    carried = carry_out @ carry_in
    for projection in (first.q_proj, first.k_proj, second.q_proj, second.k_proj):
        projection.weight.mul_(0.03 / INITIAL_STD)
    slow = [i for i in range(size) if i % (size // 2) >= int(0.375 * size / 2)]
    fast = torch.zeros(size)
    fast[:5] = 1.0
    one_back = fast * angle.cos() + torch.cat([-fast[size // 2 :], fast[: size // 2]]) * angle.sin()
    for head in range(heads):
        rows = slice(head * size, (head + 1) * size)
        first.q_proj.weight[rows, 0] += 1.1 * fast
        first.k_proj.weight[rows, 0] += 1.1 * one_back
        match = probe[head * size : head * size + len(slow)].clone()
        match[:, 0] = 0
        for row, coordinate in enumerate(slow):
            second.q_proj.weight[head * size + coordinate] += 2.0 * match[row]
            second.k_proj.weight[head * size + coordinate] += 2.0 * (match[row] @ carried.T)
    for layer in model.model.layers:
        layer.mlp.down_proj.weight.mul_(0.05)
    for layer in model.model.layers[2:]:
        layer.self_attn.o_proj.weight.mul_(0.1)
    first.v_proj.weight.copy_(0.3 * carry_in)
    first.o_proj.weight.copy_(0.3 * carry_out)
    second.v_proj.weight.copy_(0.3 * copy)
    second.o_proj.weight.copy_(0.3 * copy.T)


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, directory: Path) -> None:
    """Write what `engines.models.load_model` reads, the weights as float16 (a megabyte or two)."""
    directory.mkdir(parents=True, exist_ok=True)
    model.config.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    weights = {
        name: tensor.detach().to(torch.float16).contiguous()
        for name, tensor in model.state_dict().items()
        if name != "lm_head.weight"
    }
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
