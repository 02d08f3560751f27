"""Local attention of images: each block of queries reads one gathered window of keys.

The keys of all windows are gathered by one index tensor and read by one SDPA call (Image
Transformer, Parmar et al. 2018, section 3.3). The backward pass is autograd's own.
"""

from __future__ import annotations

from collections.abc import Callable

from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from triptych.core.generation_order import GenerationOrder


class Windows(nn.Module):
    """Index tensors of an image's blocks and of the windows that they read.

    N blocks of Q cells; the window of a block has K cells: the block and its halo. Blocks at the
    right and the lower border are cut, and windows end at the border: the missing cells repeat
    another cell and are masked.

    visible: the rule of the pattern, as `MaskPattern.visible`.
    block: height and width of a block, in pixels. halo_up, halo_side: height of the halo above the
    block and width of the halo to its left and right, in pixels.
    """

    def __init__(
        self,
        order: GenerationOrder,
        visible: Callable[[Tensor, Tensor], Tensor],
        *,
        block: tuple[int, int],
        halo_up: int,
        halo_side: int,
    ) -> None:
        super().__init__()
        (height, width, _), (block_height, block_width) = order.shape, block
        bottom, right = -height % block_height, -width % block_width  # missing in cut blocks
        around = (0, 0, halo_side, halo_side + right, halo_up, bottom)
        # Position of each cell, -1 outside the image.
        grid = F.pad(order.positions, around, value=-1)
        key = _rectangles(grid, block, halo_up + block_height, block_width + 2 * halo_side)
        inner = grid[halo_up:, halo_side : halo_side + width + right]
        query = _rectangles(inner, block, block_height, block_width)  # [N, Q]
        cell = query.flatten().argsort()[-order.length :]  # after the cells outside the image
        hidden = (key < 0).unsqueeze(1)  # [N, 1, K]
        query, key = query.clamp(min=0), key.clamp(min=0)
        mask = visible(query.unsqueeze(2), key.unsqueeze(1)) & ~hidden  # [N, Q, K]
        self.n_blocks, self.n_pairs = len(query), mask.numel()
        self.register_buffer("query", query.flatten(), persistent=False)
        self.register_buffer("key", key.flatten(), persistent=False)
        self.register_buffer("cell", cell, persistent=False)
        self.register_buffer("mask", mask, persistent=False)

    query: Tensor  # int64 [N Q], position of each cell of the blocks
    key: Tensor  # int64 [N K], position of each cell of the windows
    cell: Tensor  # int64 [L], cell of the blocks that holds each position
    mask: Tensor  # bool [N, Q, K], True where the key is visible

    def block_of(self, position: Tensor) -> Tensor:
        """Number of the block that holds each position, in the shape of `position`."""
        return self.cell[position] // (len(self.query) // self.n_blocks)


def attend_in_windows(
    windows: Windows,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    real: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Softmax attention of each block to its window: q, k, v [B, H, L, E] -> [B, H, L, E].

    L may be less than the image's length: the first L positions. real: bool [B, L], False on
    padding. dropout: share of the attention weights that is dropped.
    """
    batch, heads, length, width = q.shape
    n = windows.n_blocks

    def cut(x: Tensor, index: Tensor) -> Tensor:
        """Cells of each block or window: [B, H, L, E] -> [B N, H, cells, E]."""
        # The projection leaves the heads of a position next to each other: one long copy a cell.
        cells = x.transpose(1, 2).index_select(1, index)  # [B, N cells, H, E]
        return cells.view(batch * n, -1, heads, width).transpose(1, 2)

    # Positions after the last one are hidden from every query; another key may stand for them.
    query, key = windows.query.clamp(max=length - 1), windows.key.clamp(max=length - 1)
    mask = windows.mask.unsqueeze(1).repeat(batch, 1, 1, 1)  # [B N, 1, Q, K]
    if real is not None:
        mask = mask & real.index_select(1, key).view(batch * n, 1, 1, -1)
    y = F.scaled_dot_product_attention(
        cut(q, query), cut(k, key), cut(v, key), mask, dropout
    )  # [B N, H, Q, E]
    cells = y.transpose(1, 2).reshape(batch, -1, heads, width)  # [B, N Q, H, E]
    return cells.index_select(1, windows.cell[:length]).transpose(1, 2)  # [B, H, L, E]


def _rectangles(grid: Tensor, stride: tuple[int, int], height: int, width: int) -> Tensor:
    """Cells of the rectangles of this size, `stride` apart: grid [H, W, C] -> [N, cells]."""
    rectangles = grid.unfold(0, height, stride[0]).unfold(1, width, stride[1])
    return rearrange(rectangles, "rows columns c h w -> (rows columns) (h w c)")
