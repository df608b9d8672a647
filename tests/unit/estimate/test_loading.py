"""Feeding a GPU: published rates of one thread, what a step needs, and the old rule of 4 to 8 cores a GPU as a case."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichgpu.base.messages import english
from whichgpu.catalog.store import Catalog
from whichgpu.estimate.loading import LOADERS, loading, loading_remark

RATES = st.floats(1, 1e6)


def test_rates_of_a_thread_are_those_published() -> None:
    """12 vCPUs gave 1,058 images/s with Pillow-SIMD and 1,816 with DALI on the CPU; 10 workers 1,923 with plain Pillow."""
    plain = LOADERS["torchvision"].per_vcpu
    assert plain.low < 1058 / 12 < plain.value < 1923 / 10 < plain.high
    assert LOADERS["dali-cpu"].per_vcpu.value / plain.value == pytest.approx(1816 / 1058)
    assert LOADERS["dali-gpu"].per_vcpu.value / plain.value == pytest.approx(3910 / 1058)
    assert LOADERS["ffcv"].per_vcpu.low <= 31278 / 96 <= LOADERS["ffcv"].per_vcpu.high


def test_decoding_alone_bounds_them_from_above() -> None:
    """One thread decodes 360 to 864 such images a second and does nothing else (arXiv 2605.08731)."""
    assert LOADERS["torchvision"].per_vcpu.high < 360


def test_every_rate_cites_an_existing_source(catalog: Catalog) -> None:
    for loader in LOADERS.values():
        assert loader.per_vcpu.sources
        assert all(id in catalog.sources for id in loader.per_vcpu.sources)


@pytest.mark.parametrize(
    ("what", "images", "low", "high"),
    [
        # published ResNet-50 training in mixed precision, images a second on one GPU
        ("T4: fewer than 4 cores", 400, 0, 4),
        ("V100, NHWC: the rule", 1154, 4, 8),
        ("A100: more than 8", 2600, 8, 16),
    ],
)
def test_2022_four_to_eight_cores_a_gpu_is_right_for_its_time(what: str, images: float, low: float, high: float) -> None:
    """2022-09-02, from AutoDL's advice: each GPU wants at least 4 to 8 cores. So it is for a V100; an A100 eats more."""
    assert low <= loading(images).cores.value <= high, what


def test_slip_2022_one_core_with_dali_does_not_outdo_eight_without() -> None:
    """Slip: the same post has one core with DALI read more than eight with Python. The figures published give 3.7 times."""
    one, eight = loading(1, 2, "dali-gpu").fed, loading(1, 16).fed
    assert one is not None
    assert eight is not None
    assert one.value < eight.value
    assert one.value > 3 * eight.value / 8


def test_verdicts() -> None:
    assert loading(1154).feeds is None
    assert loading(1154, 64).feeds == "feeds"
    assert loading(1154, 8).feeds == "tight"
    assert loading(1154, 2).feeds == "starves"
    with pytest.raises(ValueError, match="above zero"):
        loading(0)


@given(RATES, st.floats(1, 512), st.sampled_from(list(LOADERS)))
def test_more_threads_never_feed_less_and_more_samples_never_need_fewer(rate: float, vcpus: float, loader: str) -> None:
    order = ("starves", "tight", "feeds")
    here, wider = loading(rate, vcpus, loader), loading(rate, 2 * vcpus, loader)
    assert here.feeds is not None
    assert wider.feeds is not None
    assert order.index(wider.feeds) >= order.index(here.feeds)
    assert loading(2 * rate, vcpus, loader).vcpus.value >= here.vcpus.value
    assert here.cores.value == pytest.approx(here.vcpus.value / 2)


def test_remark_has_required_and_available_vcpus() -> None:
    def remark(vcpus: float | None) -> str:
        return english().render(loading_remark(1154, vcpus))

    assert "about 9 vCPUs" in remark(None)
    assert "are too few to feed" in remark(2)
    assert "may be too few to feed" in remark(8)
    assert "are enough to feed" in remark(96)
