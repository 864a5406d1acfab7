"""The embedded policy's tokenizer and fresh weights."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from sojourn.engines.tiny import build_model, build_tokenizer, save

PIECES = [" red ball", " 1", " 2", " 3 front", "craft", "\ncraft", " stone", " stone bricks", "Action:", " go to"]


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(PIECES)


@given(text=st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_text_comes_back_whole(text):
    tokenizer = build_tokenizer(PIECES)
    ids = tokenizer.encode(text, add_special_tokens=False)
    # Lone surrogates cannot be encoded as UTF-8; hypothesis does not draw them.
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_the_longest_name_is_one_token(tokenizer):
    ids = tokenizer.encode("\ncraft 2 stone bricks", add_special_tokens=False)
    assert tokenizer.convert_ids_to_tokens(ids) == ["\ncraft", " 2", " stone bricks"]


def test_a_turn_costs_one_token_for_each_role(tokenizer):
    messages = [
        {"role": "user", "content": "red ball 1 3 front"},
        {"role": "assistant", "content": "Action: go to red ball 1"},
    ]
    ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=False)
    assert tokenizer.convert_ids_to_tokens(ids) == [
        *("<|user|>", " red ball", " 1", " 3 front"),
        *("<|assistant|>", "Action:", " go to", " red ball", " 1", "<|end|>", "<|assistant|>"),
    ]


def test_fresh_weights_attend_to_the_previous_token_and_to_repetitions():
    """What the initial heads are for: layer 0 looks one back, layer 1 at what followed an equal token before."""
    model = build_model(300, seed=1).eval()
    model.set_attn_implementation("eager")
    generator = torch.Generator().manual_seed(0)
    half = torch.randperm(290, generator=generator)[:20] + 5
    ids = torch.cat([half, half])[None]
    with torch.no_grad():
        first, second = model(ids, output_attentions=True).attentions[:2]
    positions = torch.arange(1, 40)
    one_back = first[0].mean(0)[positions, positions - 1].mean()
    repeated = torch.arange(21, 40)
    after_equal = second[0].mean(0)[repeated, repeated - 19].mean()
    assert one_back > 0.5
    assert after_equal > 3 / 40  # uniform attention over some thirty positions gives a thirtieth


def test_saved_weights_load_as_a_plain_llama(tmp_path, tokenizer):
    model = build_model(len(tokenizer), hidden=32, layers=2, heads=2, inner=48)
    save(model, tokenizer, tmp_path / "tiny")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "tiny", dtype=torch.float32)
    again = AutoTokenizer.from_pretrained(tmp_path / "tiny")
    ids = torch.tensor([again.encode("\ncraft 2 stone bricks", add_special_tokens=False)])
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids).logits, model(ids).logits, atol=2e-3, rtol=2e-3)
    assert loaded.lm_head.weight.data_ptr() == loaded.model.embed_tokens.weight.data_ptr()
    assert again.chat_template == tokenizer.chat_template
