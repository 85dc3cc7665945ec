from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "loger", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("loger")

REAL_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def real_data() -> Path:
    if not REAL_DATA.is_dir():
        pytest.skip(f"the real data sets are not at {REAL_DATA}")
    return REAL_DATA
