"""Prices of each cloud from public data sets, without known faults (`left` counts them by reason)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

from prices.observations import Observation, Sky, lowest, same, table

SKY, VANTAGE, KARPENTER, TSAOL = "skypilot-catalog", "vantage-ec2instances", "karpenter-aws-prices", "tsaol-aws-gpu"
SUMMED, FULLSTACK = "skypilot-gcp-sum", "fullstack-cloud-gpus"
HOME = ("us-east-1", "us-east-2", "us-west-2", "eu-west-1", "ap-northeast-1", "ap-northeast-2")
CENT = Decimal("0.00001")


class Clouds:
    """Prices of the data sets that belong to an instance of the catalog."""

    def __init__(self, evidence: Path, machines: dict[tuple[str, str], dict[str, str]], regions: set[tuple[str, str]]) -> None:
        self._evidence = evidence
        self._machines = machines
        self._regions = regions
        self.sky = Sky(evidence)
        self.left: Counter[str] = Counter()

    def all(self) -> Iterator[Observation]:
        """Yield all prices."""
        for observation in (
            *self.aws_old(),
            *self.aws(),
            *self.gcp(),
            *self.azure(),
            *self.others(),
            *self.vast(),
            *self.fullstack(),
        ):
            if observation.region != "any" and (observation.provider, observation.region) not in self._regions:
                self.left[f"{observation.provider}: region {observation.region} not in regions.csv"] += 1
            elif observation.gpu or (observation.provider, observation.instance) in self._machines:
                yield observation
            else:
                self.left[f"{observation.provider}: machine not in instances.csv"] += 1

    def aws_old(self) -> Iterator[Observation]:
        """Yield AWS prices of 2013 to 2017: on-demand and reserved by term and payment, without convertible reservations."""
        rows = table(self._evidence / "aws_ec2_gpu_price_history_2013_2017.csv")
        days = sorted({row["as_of"] for row in rows})
        payments = {"noUpfront": "no-upfront", "partialUpfront": "partial-upfront", "allUpfront": "all-upfront"}
        rows_by_offer: dict[tuple[str, str, str, str], list[list[str]]] = {}
        for row in rows:
            term, payment = "on-demand", ""
            if row["term"] != "on_demand":
                length, _, how = row["term"].removeprefix("reserved:yrTerm").partition(".")
                if length.endswith("Convertible"):
                    self.left["aws 2016-2017: convertible reservations"] += 1
                    continue
                term, payment = f"reserved-{length[0]}y", payments[how]
            runs = rows_by_offer.setdefault((row["instance_type"], row["region"], term, payment), [])
            if runs:
                if runs[-1][0] == row["usd_per_hour"]:
                    continue
                runs[-1][2] = days[days.index(row["as_of"]) - 1]
            runs.append([row["usd_per_hour"], row["as_of"], days[-1]])
        for (instance, region, term, payment), runs in rows_by_offer.items():
            for price, first, last in runs:
                until = "2013-09-26" if instance.startswith("cg1") else last
                yield Observation("aws", instance, region, term, payment, Decimal(price), first, max(first, until), "", VANTAGE)

    def aws(self) -> Iterator[Observation]:
        """Yield AWS prices of 2022 to 2026: on-demand of three data sets, one-year reservations of one, spot of some months."""
        for (instance, _, _, region), price, first, last, ended in self.sky.runs("aws", "price", live=True):
            yield Observation("aws", instance, region, "on-demand", "", Decimal(price), first, last, ended, SKY)
        for row in table(self._evidence / "karpenter_aws_gpu_ondemand_history_2022_2026.csv"):
            region, day = row["region"], row["as_of"]
            currency = "CNY" if region.startswith("cn-") else "USD"  # the prices of China are in CNY under a USD heading
            price = Decimal(row["usd_per_hour"])
            yield Observation("aws", row["instance_type"], region, "on-demand", "", price, day, day, "", KARPENTER, currency)
        for row in table(self._evidence / "aws_gpu_ondemand_reserved_2025-11-30.csv"):
            day, place = "2025-11-30", (row["instance"], row["region"])
            yield Observation("aws", *place, "on-demand", "", Decimal(row["on_demand"]), day, day, "", TSAOL)
            if row["reserved"]:
                yield Observation("aws", *place, "reserved-1y", "", Decimal(row["reserved"]), day, day, "", TSAOL)
        yield from self._aws_spot()

    def _aws_spot(self) -> Iterator[Observation]:
        """Yield spot prices: home regions each half-year, from 2025 each quarter; elsewhere each January; all at the end."""
        days = self.sky.days("aws")
        often = [
            day for day in days if day[5:7] in (("01", "07") if day < "2025" else ("01", "04", "07", "10")) or day == days[0]
        ]
        yearly = [day for day in days if day[5:7] == "01"]
        for chosen, home in ((often, True), (yearly, False)):
            for (instance, _, _, region), price, first, last, ended in self.sky.at("aws", chosen, "spot_price_min"):
                if (region in HOME) != home:
                    continue
                changes = self.sky.changes["aws"][instance, "", "", region]
                full = next(row["price"] for row in reversed(changes) if row["as_of"] <= first)
                share = Decimal(price) / Decimal(full) if full and Decimal(full) else None
                if share is None or share > 1:
                    self.left["aws: spot above on demand"] += 1
                elif first < "2023-11-02" and any(abs(share - Decimal(s)) < Decimal("0.0002") for s in ("0.3", "0.7")):
                    self.left["aws: spot made up as exactly 0.3 or 0.7 of on demand, before 2023-11"] += 1
                else:
                    yield Observation("aws", instance, region, "spot", "", Decimal(price), first, last, ended, SKY)
        for (instance, _, _, region), (full, spot) in self.sky.newest_lowest("aws").items():
            if spot and full and 0 < Decimal(spot) <= Decimal(full):
                day = self.sky.NEWEST
                yield Observation("aws", instance, region, "spot", "", Decimal(spot), day, day, "", SKY)

    def azure(self) -> Iterator[Observation]:
        """Yield prices of US regions until the file last changed; spot if it has its own price."""
        full: dict[tuple[str, str], Decimal] = {}
        for column, term in (("price", "on-demand"), ("spot_price_min", "spot")):
            for (instance, _, _, region), price, first, last, ended in self.sky.runs("azure", column, live=False):
                if instance.endswith("_Promo"):
                    self.left["azure: promotional sizes"] += 1
                    continue
                full.setdefault((instance, region), Decimal(price))
                if term == "spot" and Decimal(price) >= full[instance, region]:
                    self.left["azure: spot equal to on demand"] += 1
                    continue
                yield Observation("azure", instance, region, term, "", Decimal(price), first, last, ended, SKY)

    def gcp(self) -> Iterator[Observation]:
        """Yield prices of GPUs for N1 hosts, and sums of GPU and host for fixed instance types."""
        newest = self.sky.newest("gcp")
        hosts: dict[tuple[str, str], tuple[str, str]] = {}
        for row in newest:
            if row["InstanceType"] and not row["AcceleratorName"]:
                have = hosts.get((row["InstanceType"], row["Region"]), ("", ""))
                hosts[row["InstanceType"], row["Region"]] = lowest(have[0], row["Price"]), lowest(have[1], row["SpotPrice"])
        floor = self._gcp_floor()
        for (_, name, count, region), price, first, last, ended in self.sky.runs("gcp", "price", live=True):
            for instance, includes in GCP.get((name, count), ()):
                yield from self._gcp(instance, includes, name, count, region, Decimal(price), (first, last, ended), hosts, floor)
        spots = self.sky.newest_lowest("gcp")
        days = [day for day in self.sky.days("gcp") if day[5:7] in ("01", "04", "07", "10") or day >= "2026-06"]
        for (_, name, count, region), price, first, last, ended in self.sky.at("gcp", days, "spot_price_min"):
            for instance, includes in GCP.get((name, count), ()):
                own = (name, count, region) in floor and Decimal(price) < floor[name, count, region]
                if includes == "sum" or not own:
                    self.left["gcp: spot above on demand, or of the GPU without its host"] += 1
                else:
                    yield Observation(
                        "gcp", instance, region, "spot", "", Decimal(price), first, last, ended, SKY, "USD", includes
                    )
        for (_, name, count, region), (_, spot) in spots.items():
            for instance, includes in GCP.get((name, count), ()):
                host = hosts.get((instance, region), ("", ""))[1]
                whole = (name, count, region) in floor and spot and host and Decimal(host) > 0
                if includes == "sum" and whole and Decimal(spot) < floor[name, count, region]:
                    day, total = self.sky.NEWEST, (Decimal(spot) + Decimal(host)).quantize(CENT)
                    yield Observation("gcp", instance, region, "spot", "", total, day, day, "", SUMMED)

    def _gcp_floor(self) -> dict[tuple[str, str, str], Decimal]:
        """Yield the list price of each GPU and region. From 2025-03 many rows have other prices (flexible start, sums):
        one outside 0.9 to 1.6 of that in Iowa, or that changes and returns, is dropped."""
        everywhere: dict[tuple[str, str], list[tuple[bool, Decimal]]] = {}
        for (_, name, count, region), price, first, *_ in self.sky.runs("gcp", "price", live=True):
            if not "2025-03" <= first < "2026-08" or name in ("B200", "H200"):  # the two GPUs that were introduced in that time
                everywhere.setdefault((name, count), []).append((region != "us-central1", Decimal(price)))
        iowa = {
            key: max(price for away, price in prices if not away or all(a for a, _ in prices))
            for key, prices in everywhere.items()
        }
        floors: dict[tuple[str, str, str], Decimal] = {}
        for (_, name, count, region), price, first, *_ in self.sky.runs("gcp", "price", live=True):
            list_price, value = iowa.get((name, count), Decimal(0)), Decimal(price)
            fitting = list_price * Decimal("0.9") <= value <= list_price * Decimal("1.6")
            if fitting and (not "2025-03" <= first < "2026-08" or (name, count, region) not in floors):
                floors[name, count, region] = value
        return floors

    def _gcp(
        self,
        instance: str,
        includes: str,
        name: str,
        count: str,
        region: str,
        price: Decimal,
        span: tuple[str, str, str],
        hosts: dict[tuple[str, str], tuple[str, str]],
        floor: dict[tuple[str, str, str], Decimal],
    ) -> Iterator[Observation]:
        settled = floor.get((name, count, region))
        if settled is None or not settled * Decimal("0.9") <= price <= settled * Decimal("1.4"):
            self.left["gcp: not an on-demand price"] += 1
            return
        if "2025-03" <= span[0] < "2026-08" and not same(price, settled):
            self.left["gcp: a price that changed in 2025 and came back in 2026-08"] += 1
            return
        source = SKY
        if includes == "sum":
            host = hosts.get((instance, region), ("", ""))[0]
            if not host or not same(price, settled):
                self.left["gcp: no host price to add"] += 1
                return
            includes, source = "gpu+host", SUMMED
            if Decimal(host) == 0:  # the host of a4 machines is not in the file
                includes, source = "gpu", SKY
            price = (settled + Decimal(host)).quantize(CENT)
        yield Observation("gcp", instance, region, "on-demand", "", price, *span, source, "USD", includes)

    def others(self) -> Iterator[Observation]:
        """Yield prices of clouds with the same instance names everywhere, and of brokers whose names identify the variant."""
        for cloud, live in OTHERS.items():
            currency = "EUR" if cloud in ("scaleway", "seeweb") else "USD"
            full: dict[tuple[str, str], Decimal] = {}
            for column, term in (("price", "on-demand"), ("spot_price_min", "spot")):
                for key, price, first, last, ended in self.sky.runs(cloud, column, live):
                    (instance, _, _, region), (name, count) = key, self.sky.named[cloud][key]
                    value = Decimal(price)
                    if cloud == "hyperbolic" and last < "2025-06-10":
                        self.left["hyperbolic: one GPU's price for machines of several, before 2025-06-10"] += 1
                        continue
                    if cloud == "mithril":
                        if term == "on-demand" or value / Decimal(count) < Decimal("0.2"):
                            self.left["mithril: bids and reserve prices"] += 1
                            continue
                    elif term == "on-demand":
                        full[instance, region] = value
                    elif value >= full.get((instance, region), value):
                        self.left[f"{cloud}: spot not below on demand"] += 1
                        continue
                    gpu = "" if (cloud, instance) in self._machines else variant(cloud, instance, name)
                    place = region if region and cloud not in ("hyperbolic", "primeintellect") else "any"
                    if not gpu and (cloud, instance) not in self._machines:
                        self.left[f"{cloud}: machine or variant not known"] += 1
                        continue
                    machine = (gpu, count) if gpu else ("", "")
                    yield Observation(
                        cloud, instance, place, term, "", value, first, last, ended, SKY, currency, "gpu+host", *machine
                    )

    def vast(self) -> Iterator[Observation]:
        """Yield the lowest price of one GPU in each country of a marketplace, on each day of data."""
        days = self.sky.days("vast")
        lowest_on: dict[tuple[str, str, str], Decimal] = {}
        for key, price, first, last, _ in self.sky.runs("vast", "price", live=True):
            (instance, _, _, region), (_, count) = key, self.sky.named["vast"].get(key, ("", key[0].partition("x")[0]))
            model, place = instance.split("-")[1], region.split(", ")
            if count != "1" or len(place) < 2 or model.startswith(("A100", "Tesla_V100")):  # memory size not stated
                continue
            country = place[1]
            for day in [*days, self.sky.NEWEST]:
                if first <= day <= last:
                    listing = (f"1x-{model}", country, day)
                    lowest_on[listing] = min(lowest_on.get(listing, Decimal(price)), Decimal(price))
        for (instance, country, day), price in lowest_on.items():
            if price >= Decimal("0.02"):
                yield Observation("vast", instance, country, "on-demand", "", price, day, day, "", SKY)

    def fullstack(self) -> Iterator[Observation]:
        """Yield hand-kept prices of 2022 to 2025: instances with the cloud's own name, and GPUs of one variant."""
        for row in table(self._evidence / "fullstack_cloud_gpus_history_2022_2025.csv"):
            provider = FULLSTACK_CLOUDS.get(row["cloud"])
            price = row["on_demand"].lstrip("$")
            if provider is None or not price:
                self.left["fullstack: cross-checked only, or no price"] += 1
                continue
            instance = row["name"] or FULLSTACK_NAMES.get((provider, row["gpu"], row["gpus"]), "")
            gpu = FULLSTACK_GPUS.get((provider, row["gpu"]), "")
            if (provider, instance) in self._machines:
                gpu = ""
            elif not gpu:
                self.left["fullstack: variant not told"] += 1
                continue
            instance = instance or f"{row['gpus']}x {row['gpu']}"
            day, machine = row["as_of"], (gpu, row["gpus"]) if gpu else ("", "")
            yield Observation(
                provider, instance, "any", "on-demand", "", Decimal(price), day, day, "", FULLSTACK, "USD", "gpu+host", *machine
            )
            if provider == "jarvislabs" and row["spot"]:
                spot = Decimal(row["spot"])
                yield Observation(
                    provider, instance, "any", "spot", "", spot, day, day, "", FULLSTACK, "USD", "gpu+host", *machine
                )


def _gcp_machines() -> dict[tuple[str, str], tuple[tuple[str, str], ...]]:
    """Instances of the catalog by SkyPilot's accelerator and count, and what the price includes (`sum`: add the host)."""
    machines: dict[tuple[str, str], tuple[tuple[str, str], ...]] = {}
    for name in ("K80", "P4", "P100", "V100", "T4"):
        for count in ("1", "2", "4", "8"):
            machines[name, count] = ((f"n1+{count}x{name.lower()}", "gpu"),)
    sums = {
        ("A100", "1"): "a2-highgpu-1g", ("A100", "2"): "a2-highgpu-2g", ("A100", "4"): "a2-highgpu-4g",
        ("A100", "8"): "a2-highgpu-8g", ("A100", "16"): "a2-megagpu-16g",
        ("A100-80GB", "1"): "a2-ultragpu-1g", ("A100-80GB", "2"): "a2-ultragpu-2g", ("A100-80GB", "4"): "a2-ultragpu-4g",
        ("A100-80GB", "8"): "a2-ultragpu-8g",
        ("H100", "1"): "a3-highgpu-1g", ("H100", "2"): "a3-highgpu-2g", ("H100", "4"): "a3-highgpu-4g",
        ("H100", "8"): "a3-highgpu-8g", ("H100-MEGA", "8"): "a3-megagpu-8g",
        ("H200", "8"): "a3-ultragpu-8g", ("B200", "8"): "a4-highgpu-8g",
        ("RTXPRO6000", "1"): "g4-standard-48", ("RTXPRO6000", "2"): "g4-standard-96",
        ("RTXPRO6000", "4"): "g4-standard-192", ("RTXPRO6000", "8"): "g4-standard-384",
        ("L4", "2"): "g2-standard-24", ("L4", "4"): "g2-standard-48", ("L4", "8"): "g2-standard-96",
    }  # fmt: skip
    machines |= {key: ((instance, "sum"),) for key, instance in sums.items()}
    machines["L4", "1"] = tuple((f"g2-standard-{size}", "sum") for size in (4, 8, 12, 16, 32))
    tpus = {
        "tpu-v2-8": "v2-8", "tpu-v3-8": "v3-8", "tpu-v4-8": "ct4p-hightpu-4t", "tpu-v5p-8": "ct5p-hightpu-4t",
        "tpu-v5litepod-1": "ct5lp-hightpu-1t", "tpu-v5litepod-4": "ct5lp-hightpu-4t", "tpu-v5litepod-8": "ct5lp-hightpu-8t",
        "tpu-v6e-1": "ct6e-standard-1t", "tpu-v6e-4": "ct6e-standard-4t", "tpu-v6e-8": "ct6e-standard-8t",
    }  # fmt: skip
    return machines | {(name, "1"): ((instance, "gpu+host"),) for name, instance in tpus.items()}


def variant(cloud: str, instance: str, name: str) -> str:
    """Variant of a broker's instance; empty if its name is ambiguous."""
    if cloud == "shadeform":
        upstream, _, model = instance.partition("_")
        model = model.partition("x")[0] if model[:3] not in ("RTX",) else model
        if upstream in ("hyperstack", "crusoe") and model.startswith("A100-80GB"):
            return "a100-pcie-80gb"
    if cloud == "primeintellect" and "__" in instance and name in ("A6000", "L40", "L40S", "RTX6000Ada", "A4000", "A10"):
        return VARIANTS[name]
    if cloud == "mithril":
        variants = {"h100-80gb.sxm": "h100-sxm", "h200": "h200-sxm", "a100-80gb.sxm": "a100-sxm-80gb"}
        return next((gpu for name, gpu in variants.items() if instance.startswith(f"{name}.")), "")
    if cloud == "hyperbolic" and name in ("H100-SXM", "H100", "RTX4090"):  # its H100s report themselves as 80GB HBM3
        return VARIANTS[name]
    if cloud == "shadeform" and ("-sxm4" in instance or "-sxm5" in instance):
        big = "80G" in instance  # written 80G and 80GB
        variants = {"H200": "h200-sxm", "H100": "h100-sxm", "A100": "a100-sxm-80gb" if big else "a100-sxm-40gb", "B200": "b200"}
        return next((gpu for model, gpu in variants.items() if model in instance), "")
    if cloud in ("shadeform", "seeweb", "yotta") and name in VARIANTS and name != "H100":
        return VARIANTS[name]
    return ""


GCP = _gcp_machines()
OTHERS = {
    "lambda": True, "runpod": True, "nebius": True, "verda": True, "shadeform": True, "seeweb": True, "mithril": True,
    "oci": False, "ibm": False, "ovhcloud": False, "scaleway": False, "do": False, "hyperstack": False, "paperspace": False,
    "fluidstack": False, "cudo": False, "primeintellect": False, "hyperbolic": False, "yotta": False,
}  # fmt: skip
VARIANTS = {
    "L4": "l4", "L40": "l40", "L40S": "l40s", "L40s": "l40s", "A10": "a10", "A16": "a16", "A30": "a30", "A40": "a40",
    "A4000": "rtx-a4000", "A5000": "rtx-a5000", "A6000": "rtx-a6000", "RTXA6000": "rtx-a6000", "RTX6000Ada": "rtx-6000-ada",
    "RTX4090": "rtx-4090", "RTX5090": "rtx-5090", "GH200": "gh200-96gb", "B200": "b200", "B300": "b300",
    "H100-SXM": "h100-sxm", "H100": "h100-sxm", "a100-80gb.sxm": "a100-sxm-80gb",
}  # fmt: skip
FULLSTACK_CLOUDS = {
    "Lambda": "lambda", "Paperspace": "paperspace", "Datacrunch": "verda", "OVHcloud": "ovhcloud", "Jarvislabs": "jarvislabs",
    "Exoscale": "exoscale", "Oracle Cloud": "oci",
}  # fmt: skip
FULLSTACK_NAMES = {
    ("lambda", "A100 (40 GB)", "1"): "gpu_1x_a100", ("lambda", "A100 (40 GB)", "2"): "gpu_2x_a100",
    ("lambda", "A100 (40 GB)", "4"): "gpu_4x_a100", ("lambda", "A100 (40 GB)", "8"): "gpu_8x_a100",
    ("lambda", "A100 (80 GB)", "8"): "gpu_8x_a100_80gb_sxm4", ("lambda", "V100 (16 GB)", "8"): "gpu_8x_v100",
    ("lambda", "A6000 (48 GB)", "1"): "gpu_1x_a6000", ("lambda", "A6000 (48 GB)", "2"): "gpu_2x_a6000",
    ("lambda", "A6000 (48 GB)", "4"): "gpu_4x_a6000",
    ("paperspace", "V100 (16 GB)", "1"): "V100", ("paperspace", "V100 (32 GB)", "1"): "V100-32G",
    ("paperspace", "V100 (32 GB)", "2"): "V100-32Gx2", ("paperspace", "V100 (32 GB)", "4"): "V100-32Gx4",
    ("paperspace", "A6000 (48 GB)", "1"): "A6000", ("paperspace", "A6000 (48 GB)", "2"): "A6000x2",
    ("paperspace", "A6000 (48 GB)", "4"): "A6000x4", ("paperspace", "A100 (40 GB)", "1"): "A100",
    ("paperspace", "A100 (40 GB)", "2"): "A100x2", ("paperspace", "A100 (40 GB)", "4"): "A100x4",
    ("paperspace", "A100 (40 GB)", "8"): "A100x8", ("paperspace", "A100 (80 GB)", "1"): "A100-80G",
    ("paperspace", "A100 (80 GB)", "2"): "A100-80Gx2", ("paperspace", "A100 (80 GB)", "4"): "A100-80Gx4",
    ("paperspace", "A100 (80 GB)", "8"): "A100-80Gx8",
}  # fmt: skip
FULLSTACK_GPUS = {
    ("jarvislabs", "A6000 (48 GB)"): "rtx-a6000", ("jarvislabs", "A5000 (24 GB)"): "rtx-a5000",
    ("jarvislabs", "RTX5000 (16GB)"): "quadro-rtx-5000", ("jarvislabs", "RTX5000 (16 GB)"): "quadro-rtx-5000",
    ("exoscale", "A40 (48 GB)"): "a40", ("exoscale", "A5000 (24 GB)"): "rtx-a5000", ("exoscale", "3080Ti (12 GB)"): "rtx-3080-ti",
}  # fmt: skip
