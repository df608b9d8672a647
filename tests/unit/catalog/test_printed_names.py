"""GPU names as drivers, system tools, clouds and shops print them: each means its own variant, or lists the candidates."""

from __future__ import annotations

import pytest

from whichgpu.base.errors import NoAnswer, UnknownName
from whichgpu.catalog.find import find_gpus
from whichgpu.catalog.store import Catalog

NVIDIA_SMI = """
NVIDIA A100-SXM4-40GB = a100-sxm-40gb
NVIDIA A100-SXM4-80GB = a100-sxm-80gb
NVIDIA A100-PCIE-40GB = a100-pcie-40gb
NVIDIA A100 80GB PCIe = a100-pcie-80gb
NVIDIA A800 40GB Active = a800-40gb-active
NVIDIA A800-SXM4-80GB = a800-sxm-80gb
NVIDIA H100 80GB HBM3 = h100-sxm
NVIDIA H100 PCIe = h100-pcie
NVIDIA H100 NVL = h100-nvl
NVIDIA H200 = h200-sxm
NVIDIA H200 NVL = h200-nvl
NVIDIA H20 = h20-96gb
NVIDIA H20-3e = h20-141gb
NVIDIA H800 PCIe = h800-pcie
NVIDIA GH200 480GB = gh200-96gb
NVIDIA GH200 144G HBM3e = gh200-144gb
NVIDIA B200 = b200
NVIDIA B300 SXM6 AC = b300
NVIDIA GB200 = gb200
NVIDIA GB300 = gb300
NVIDIA GB10 = gb10
NVIDIA Thor = jetson-t5000
NVIDIA L2 = l2
NVIDIA L4 = l4
NVIDIA L20 = l20
NVIDIA L40S = l40s
NVIDIA A10 = a10
NVIDIA A10G = a10g
NVIDIA A10M = a10m
NVIDIA A30 = a30
NVIDIA T4G = t4g
Tesla T4 = t4
Tesla V100-SXM2-16GB = v100-sxm-16gb
Tesla V100-PCIE-32GB = v100-pcie-32gb
Tesla V100S-PCIE-32GB = v100s
Tesla P100-PCIE-12GB = p100-pcie-12gb
Tesla P100-SXM2-16GB = p100-sxm-16gb
Tesla P40 = p40
Tesla P4 = p4
Tesla M60 = m60
Tesla M40 24GB = m40-24gb
Tesla K80 = k80
Tesla K40m = k40
Quadro RTX 8000 = quadro-rtx-8000
Quadro RTX 5000 = quadro-rtx-5000
NVIDIA TITAN Xp COLLECTORS EDITION = titan-xp
NVIDIA TITAN V = titan-v
NVIDIA TITAN RTX = titan-rtx
NVIDIA T400 4GB = t400-4gb
NVIDIA T1000 8GB = t1000-8gb
NVIDIA RTX A1000 = rtx-a1000
NVIDIA RTX A2000 12GB = rtx-a2000-12gb
NVIDIA RTX 2000 Ada Generation = rtx-2000-ada
NVIDIA RTX 4000 Ada Generation = rtx-4000-ada
NVIDIA RTX 4000 SFF Ada Generation = rtx-4000-sff-ada
NVIDIA RTX 6000 Ada Generation = rtx-6000-ada
NVIDIA RTX PRO 2000 Blackwell = rtx-pro-2000
NVIDIA RTX PRO 4000 Blackwell = rtx-pro-4000
NVIDIA RTX PRO 4000 Blackwell SFF Edition = rtx-pro-4000-sff
NVIDIA RTX PRO 4500 Blackwell = rtx-pro-4500
NVIDIA RTX PRO 5000 72GB Blackwell = rtx-pro-5000-72gb
NVIDIA RTX PRO 6000 Blackwell Server Edition = rtx-pro-6000-server
NVIDIA RTX PRO 6000 Blackwell Workstation Edition = rtx-pro-6000-workstation
NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition = rtx-pro-6000-max-q
NVIDIA GeForce GTX 1650 = gtx-1650
NVIDIA GeForce GTX 1650 SUPER = gtx-1650-super
NVIDIA GeForce GTX 1660 Ti = gtx-1660-ti
NVIDIA GeForce RTX 3050 6GB = rtx-3050-6gb
NVIDIA GeForce RTX 3060 = rtx-3060-12gb rtx-3060-8gb
NVIDIA GeForce RTX 3080 = rtx-3080-10gb rtx-3080-12gb
NVIDIA GeForce RTX 4060 Ti = rtx-4060-ti-8gb rtx-4060-ti-16gb
NVIDIA GeForce RTX 4090 D = rtx-4090-d
NVIDIA GeForce RTX 5060 Ti = rtx-5060-ti-8gb rtx-5060-ti-16gb
NVIDIA GeForce RTX 5090 D v2 = rtx-5090-d-v2
nvidia geforce rtx 4090 laptop gpu = rtx-4090-laptop
NVIDIA GeForce RTX 3080 Laptop GPU = rtx-3080-laptop-8gb rtx-3080-laptop-16gb
NVIDIA GeForce RTX 3080 Ti Laptop GPU = rtx-3080-ti-laptop
NVIDIA GeForce RTX 4050 Laptop GPU = rtx-4050-laptop
NVIDIA GeForce RTX 4070 Laptop GPU = rtx-4070-laptop
NVIDIA GeForce RTX 5070 Ti Laptop GPU = rtx-5070-ti-laptop
NVIDIA GeForce RTX 5080 Laptop GPU = rtx-5080-laptop
NVIDIA GeForce RTX 5090 Laptop GPU = rtx-5090-laptop
NVIDIA GeForce RTX 2080 with Max-Q Design = rtx-2080-max-q
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5fd4f087-86f3-7a43) = a100-sxm-40gb
"""

OTHER_DRIVERS = """
AMD Instinct MI300X OAM = mi300x
AMD Instinct MI325X OAM = mi325x
AMD Instinct MI355X = mi355x
AMD Instinct MI210 = mi210
Card series: AMD Instinct MI250X = mi250x
Card Series:  AMD Radeon RX 7900 XTX = rx-7900-xtx
AMD Radeon RX 6600 XT = rx-6600-xt
AMD Radeon RX 7600 XT = rx-7600-xt
AMD Radeon RX 9060 = rx-9060
AMD Radeon RX 9070 GRE = rx-9070-gre
AMD Radeon PRO W7700 = pro-w7700
AMD Radeon AI PRO R9700 = ai-pro-r9700
AMD Radeon 8060S Graphics = ryzen-ai-max-395
AMD RYZEN AI MAX+ 395 w/ Radeon 8060S = ryzen-ai-max-395
Intel(R) Arc(TM) A770 Graphics = arc-a770-16gb arc-a770-8gb
Intel(R) Arc(TM) B580 Graphics = arc-b580
Intel(R) Arc(TM) Pro B50 Graphics = arc-pro-b50
Intel(R) Arc(TM) Pro B70 Graphics = arc-pro-b70
Intel(R) Data Center GPU Max 1550 = max-1550
Chipset Model: Apple M2 Pro = apple-m2-pro
Apple M4 Max = apple-m4-max
"""

LSPCI = """
01:00.0 VGA compatible controller: NVIDIA Corporation AD102 [GeForce RTX 4090] (rev a1) = rtx-4090
17:00.0 3D controller: NVIDIA Corporation GA100 [A100 SXM4 80GB] (rev a1) = a100-sxm-80gb
NVIDIA Corporation GA102GL [RTX A6000] = rtx-a6000
NVIDIA Corporation TU104GL [Tesla T4] (rev a1) = t4
NVIDIA Corporation GV100GL [Tesla V100 SXM2 16GB] = v100-sxm-16gb
NVIDIA Corporation GH100 [H100 SXM5 80GB] = h100-sxm
NVIDIA Corporation AD102GL [RTX 6000 Ada Generation] = rtx-6000-ada
NVIDIA Corporation GA106 [GeForce RTX 3060 Lite Hash Rate] = rtx-3060-12gb rtx-3060-8gb
NVIDIA Corporation GA104M [GeForce RTX 3080 Mobile / Max-Q 8GB/16GB] (rev a1) = rtx-3080-laptop-8gb rtx-3080-laptop-16gb
NVIDIA Corporation AD106M [GeForce RTX 4070 Max-Q / Mobile] = rtx-4070-laptop
NVIDIA Corporation GB203M [GeForce RTX 5090 Mobile] = rtx-5090-laptop
Advanced Micro Devices, Inc. [AMD/ATI] Navi 31 [Radeon RX 7900 XT/7900 XTX/7900M] = rx-7900-xt rx-7900-xtx
Advanced Micro Devices, Inc. [AMD/ATI] Navi 21 [Radeon RX 6800/6800 XT / 6900 XT] = rx-6800 rx-6800-xt rx-6900-xt
Advanced Micro Devices, Inc. [AMD/ATI] Aqua Vanjaram [Instinct MI300X] = mi300x
Advanced Micro Devices, Inc. [AMD/ATI] Arcturus GL-XL [Instinct MI100] (rev 01) = mi100
"""

CLOUDS = """
nvidia-tesla-t4 = t4
nvidia-tesla-a100 = a100-sxm-40gb
nvidia-a100-80gb = a100-pcie-80gb a100-sxm-80gb
nvidia-h100-mega-80gb = h100-sxm
nvidia-l4 = l4
tpu-v5-lite-podslice = tpu-v5e
tpu-v5p-slice = tpu-v5p
tpu-v6e-slice = tpu-v6e
tpu7x = tpu-v7
1x A100 (40 GB SXM4) = a100-sxm-40gb
NVIDIA A10G Tensor Core GPU = a10g
8xA100-80GB-SXM4 = a100-sxm-80gb
RTX_6000Ada = rtx-6000-ada
Q_RTX_8000 = quadro-rtx-8000
RTX_4070S_Ti = rtx-4070-ti-super
g5.xlarge = a10g
Standard_NC24ads_A100_v4 = a100-pcie-80gb
inf2.xlarge = inferentia2
"""

TYPED = """
DGX Spark = gb10
GB200 NVL72 = gb200
Jetson AGX Orin 32GB = jetson-agx-orin-32gb
Jetson AGX Orin = jetson-agx-orin-32gb jetson-agx-orin-64gb
Jetson Orin Nano Super = jetson-orin-nano-super
Jetson T4000 = jetson-t4000
RTX 4000 Ada 20GB = rtx-4000-ada
RTX 4000 SFF Ada 20GB = rtx-4000-sff-ada
RTX 4000 = quadro-rtx-4000 rtx-4000-ada rtx-4000-sff-ada
RTX 3060 8GB = rtx-3060-8gb
RTX 3050 = rtx-3050-6gb rtx-3050-8gb
A100 40GB PCIe = a100-pcie-40gb
RX 9060 XT 8GB = rx-9060-xt-8gb
Strix Halo 64GB = ryzen-ai-max-395-64gb
Arc A770 8GB = arc-a770-8gb
M4 Max 36GB = apple-m4-max-36gb
M3 Ultra 96GB = apple-m3-ultra-96gb
M2 Ultra 192GB = apple-m2-ultra
M5 Max = apple-m5-max
T1000 = t1000-4gb t1000-8gb
M4 = tesla-m4 apple-m4
P100 16GB = p100-pcie-16gb p100-sxm-16gb
Trainium 2 = trainium2
Ironwood = tpu-v7
"""


def cases(table: str) -> list[tuple[str, set[str]]]:
    pairs = (line.rpartition(" = ") for line in table.strip().splitlines())
    return [(name.strip(), set(ids.split())) for name, _, ids in pairs]


SPELLINGS = [case for table in (NVIDIA_SMI, OTHER_DRIVERS, LSPCI, CLOUDS, TYPED) for case in cases(table)]


@pytest.mark.parametrize(("printed", "ids"), SPELLINGS)
def test_a_printed_name_means_its_own_variants(catalog: Catalog, printed: str, ids: set[str]) -> None:
    assert {gpu.id for gpu in find_gpus(catalog, printed)} == ids


def test_there_are_enough_spellings() -> None:
    assert len(SPELLINGS) >= 120


@pytest.mark.parametrize(
    "printed",
    [
        "NVIDIA RTX A2000 Laptop GPU",
        "NVIDIA RTX 5000 Ada Generation Laptop GPU",
        "Quadro RTX 5000 with Max-Q Design",
        "GeForce GTX 1660 Ti with Max-Q Design",
        "NVIDIA GeForce RTX 2080 Super with Max-Q Design",
        "RTX 4090 48GB",
        "A100 64GB",
        "H100 96GB",
        "GRID T4-16Q",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "AMD Radeon RX 7900M",
    ],
)
def test_variant_without_a_row_never_matches_another(catalog: Catalog, printed: str) -> None:
    with pytest.raises(UnknownName):
        find_gpus(catalog, printed)


@pytest.mark.parametrize("printed", ["Ascend 910B", "Huawei Ascend 910C", "Ascend 910B3", "8xMI308X"])
def test_accelerator_without_published_figures_is_refused_with_the_missing_ones(catalog: Catalog, printed: str) -> None:
    with pytest.raises(NoAnswer, match="not known") as caught:
        find_gpus(catalog, printed)
    assert caught.value.kind == "unsupported-gpu"
