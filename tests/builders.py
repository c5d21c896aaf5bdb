"""The names of before tests/kit, for as long as a test uses them."""

from tests.kit.data_sets import (  # noqa: F401
    CAR_NAMES,
    CUB_NAMES,
    PRODUCTS,
    make_cars196,
    make_cub200,
    make_folder,
    make_online_products,
)
from tests.kit.documents import documented_example as documented  # noqa: F401
from tests.kit.images import random_picture as picture  # noqa: F401
from tests.kit.images import write_image  # noqa: F401
from tests.kit.refusals import refused  # noqa: F401
from tests.kit.runs import (  # noqa: F401
    SHORT_RUN,
    assert_same_run,
    run_words,
)
from tests.kit.runs import SMALL_IMAGES as SMALL  # noqa: F401
from tests.kit.runs import equal_states as equal  # noqa: F401
from tests.kit.runs import last_checkpoint as last  # noqa: F401
from tests.kit.runs import pass_dry_run as dry_run  # noqa: F401
from tests.kit.runs import recorded_values as values  # noqa: F401
