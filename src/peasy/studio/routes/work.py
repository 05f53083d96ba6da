"""Route of the Work page: effect of the scaling by √d_k."""

from fastapi import APIRouter, Request, Response
from pydantic import Field

from peasy.studio.reply import Asked, reply
from peasy.workbench.scale import WIDEST, scale

router = APIRouter(prefix="/api")


class Scale(Asked):
    """Dimension of queries and keys."""

    d_k: int = Field(64, ge=1, le=WIDEST)
    seed: int = Field(0, ge=0, le=2**31)


@router.post("/scale")
async def post_scale(request: Request, asked: Scale) -> Response:
    """Return what the division by √d_k does to attention weights and gradient."""
    return await reply(request, "scale", asked, lambda: scale(**asked.given()))
