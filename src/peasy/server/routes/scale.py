"""Route of the Work page: effect of the scaling by √d_k."""

from typing import Annotated

from annotated_types import Ge, Le
from fastapi import APIRouter

from peasy.experiments.why_root_dk import MAX_D_K, scale
from peasy.server.derive import add_command_route

router = APIRouter(prefix="/api")
add_command_route(
    router,
    "/scale",
    scale,
    changes={"d_k": Annotated[int, Ge(1), Le(MAX_D_K)], "seed": Annotated[int, Ge(0), Le(2**31)]},
)
