"""A mixture of experts with the shapes of DeepSeek-V3: 61 layers, 58 of them with 256 experts and a shared one, on the meta device."""

from __future__ import annotations

from torch import nn


class GatedMLP(nn.Module):
    """Gate, up and down projection."""

    def __init__(self, width: int, hidden: int, device: str) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, hidden, bias=False, device=device)
        self.up_proj = nn.Linear(width, hidden, bias=False, device=device)
        self.down_proj = nn.Linear(hidden, width, bias=False, device=device)
        self.act_fn = nn.SiLU()


class LatentAttention(nn.Module):
    """Multi-head latent attention: queries, keys and values through low-rank bottlenecks."""

    def __init__(self, width: int, heads: int, device: str) -> None:
        super().__init__()
        self.q_a_proj = nn.Linear(width, 1536, bias=False, device=device)
        self.q_a_layernorm = nn.RMSNorm(1536, device=device)
        self.q_b_proj = nn.Linear(1536, heads * 192, bias=False, device=device)
        self.kv_a_proj_with_mqa = nn.Linear(width, 512 + 64, bias=False, device=device)
        self.kv_a_layernorm = nn.RMSNorm(512, device=device)
        self.kv_b_proj = nn.Linear(512, heads * 256, bias=False, device=device)
        self.o_proj = nn.Linear(heads * 128, width, bias=False, device=device)


class Experts(nn.Module):
    """A router, its experts, and the expert that every token passes."""

    def __init__(self, width: int, hidden: int, experts: int, device: str) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False, device=device)
        self.experts = nn.ModuleList([GatedMLP(width, hidden, device) for _ in range(experts)])
        self.shared_experts = GatedMLP(width, hidden, device)


class DecoderLayer(nn.Module):
    """Attention, then a dense or a sparse feed-forward part."""

    def __init__(self, width: int, dense: bool, device: str) -> None:
        super().__init__()
        self.self_attn = LatentAttention(width, 128, device)
        self.mlp = GatedMLP(width, 18432, device) if dense else Experts(width, 2048, 256, device)
        self.input_layernorm = nn.RMSNorm(width, device=device)
        self.post_attention_layernorm = nn.RMSNorm(width, device=device)


class DeepSeek(nn.Module):
    """671 billion parameters that take no memory."""

    def __init__(self, width: int = 7168, layers: int = 61, device: str = "meta") -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(129280, width, device=device)
        self.layers = nn.ModuleList([DecoderLayer(width, i < 3, device) for i in range(layers)])
        self.norm = nn.RMSNorm(width, device=device)
        self.lm_head = nn.Linear(width, 129280, bias=False, device=device)
