"""Route of the Work page: effect of the scaling by √d_k."""

from fastapi import APIRouter, Request, Response
from pydantic import Field

from peasy.experiments.scale import MAX_D_K, scale
from peasy.server.responses import CommandBody, respond

router = APIRouter(prefix="/api")


class ScaleBody(CommandBody):
    """Dimension of queries and keys."""

    d_k: int = Field(64, ge=1, le=MAX_D_K)
    seed: int = Field(0, ge=0, le=2**31)


@router.post("/scale")
async def post_scale(request: Request, body: ScaleBody) -> Response:
    """Return what the division by √d_k does to attention weights and gradient."""
    return await respond(request, "scale", body, lambda: scale(**body.arguments()))
