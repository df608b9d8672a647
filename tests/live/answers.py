"""Answers of the sources in the shapes their documentation gives, small enough to read."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from typing import Any

SKYPILOT_HEADER = (
    "InstanceType AcceleratorName AcceleratorCount vCPUs MemoryGiB GpuInfo Price SpotPrice Region AvailabilityZone".split()
)


def info(name: str, mib: float, count: float = 1) -> str:
    return str({"Gpus": [{"Name": name, "Manufacturer": "NVIDIA", "Count": count, "MemoryInfo": {"SizeInMiB": mib}}]})


def table(header: list[str], rows: list[list[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([header, *rows])
    return text.getvalue().encode()


def skypilot(*rows: list[object]) -> bytes:
    """A cloud's file."""
    return table(SKYPILOT_HEADER, list(rows))


def p5(price: object = "55.04", spot: object = "17.1", zone: str = "use1-az1") -> list[object]:
    return ["p5.48xlarge", "H100", 8.0, 192, 2048, info("H100", 81920, 8), price, spot, "us-east-1", zone]


def azure_item(**changes: Any) -> dict[str, Any]:
    """One item of the retail price feed (api-version 2023-01-01-preview)."""
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": 98.32,
        "unitPrice": 98.32,
        "armRegionName": "eastus",
        "location": "US East",
        "effectiveStartDate": "2026-01-01T00:00:00Z",
        "meterId": "000a794b-bdb0-58be-a0cd-0c3a0f222923",
        "meterName": "ND96isr H100 v5",
        "productId": "DZH318Z0BQPS",
        "skuId": "DZH318Z0BQPS/00TG",
        "productName": "Virtual Machines NDsrH100v5 Series",
        "skuName": "ND96isr H100 v5",
        "serviceName": "Virtual Machines",
        "serviceId": "DZH313Z7MMC8",
        "serviceFamily": "Compute",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "armSkuName": "Standard_ND96isr_H100_v5",
        **changes,
    }


def azure_page(*items: Any, next: str | None = None) -> dict[str, Any]:
    return {
        "BillingCurrency": "USD",
        "CustomerEntityId": "Default",
        "CustomerEntityType": "Retail",
        "Items": list(items),
        "NextPageLink": next,
        "Count": len(items),
    }


AWS_HEADER = (
    "SKU,OfferTermCode,RateCode,TermType,PriceDescription,EffectiveDate,StartingRange,EndingRange,Unit,PricePerUnit,Currency,"
    "RelatedTo,LeaseContractLength,PurchaseOption,OfferingClass,Product Family,serviceCode,Location,Location Type,Instance Type,"
    "vCPU,Memory,Tenancy,Operating System,License Model,GPU,CapacityStatus,Pre Installed S/W,Region Code,MarketOption"
).split(",")


def aws_line(**cells: str) -> list[object]:
    usual = {
        "SKU": "ABC",
        "OfferTermCode": "JRTCKXETXF",
        "TermType": "OnDemand",
        "Unit": "Hrs",
        "PricePerUnit": "55.0400000000",
        "Currency": "USD",
        "Product Family": "Compute Instance",
        "Instance Type": "p5.48xlarge",
        "Tenancy": "Shared",
        "Operating System": "Linux",
        "GPU": "8",
        "CapacityStatus": "Used",
        "Pre Installed S/W": "NA",
        "Region Code": "us-east-1",
        "MarketOption": "OnDemand",
    }
    return [{**usual, **{name.replace("_", " "): value for name, value in cells.items()}}.get(name, "") for name in AWS_HEADER]


def aws_file(*lines: list[object]) -> bytes:
    """A region's file: five lines of preface, the header, the lines."""
    preface = [
        ["FormatVersion", "v1.0"],
        ["Disclaimer", "This pricing list is for informational purposes only."],
        ["Publication Date", "2026-11-13T18:44:23Z"],
        ["Version", "20261113184423"],
        ["OfferCode", "AmazonEC2"],
    ]
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([*preface, AWS_HEADER, *lines])
    return text.getvalue().encode()


def aws_index(*regions: str) -> dict[str, Any]:
    version = "/offers/v1.0/aws/AmazonEC2/20261113184423"
    entries = {name: {"regionCode": name, "currentVersionUrl": f"{version}/{name}/index.json"} for name in regions}
    return {"formatVersion": "v1.0", "disclaimer": "…", "publicationDate": "2026-11-13T18:44:23Z", "regions": entries}


def sku(description: str, units: str, nanos: int, usage: str = "OnDemand", group: str = "CPU", **changes: Any) -> dict[str, Any]:
    """One SKU of the Cloud Billing catalog."""
    return {
        "name": "services/6F81-5844-456A/skus/0001",
        "skuId": "0001",
        "description": description,
        "category": {
            "serviceDisplayName": "Compute Engine",
            "resourceFamily": "Compute",
            "resourceGroup": group,
            "usageType": usage,
        },
        "serviceRegions": ["us-central1"],
        "pricingInfo": [
            {
                "summary": "",
                "pricingExpression": {
                    "usageUnit": "h",
                    "displayQuantity": 1,
                    "tieredRates": [
                        {"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "units": units, "nanos": nanos}}
                    ],
                },
                "effectiveTime": "2026-11-01T00:00:00Z",
            }
        ],
        "serviceProviderName": "Google",
        **changes,
    }


def runpod_type(**changes: Any) -> dict[str, Any]:
    return {
        "id": "NVIDIA H100 80GB HBM3",
        "displayName": "H100 SXM",
        "memoryInGb": 80,
        "maxGpuCount": 8,
        "secureCloud": True,
        "communityCloud": True,
        "securePrice": 2.69,
        "communityPrice": 2.59,
        "secureSpotPrice": 1.75,
        "communitySpotPrice": 1.5,
        "lowestPrice": {"stockStatus": "Low"},
        **changes,
    }


def vast_offer(**changes: Any) -> dict[str, Any]:
    return {
        "id": 24512,
        "gpu_name": "RTX 4090",
        "num_gpus": 2,
        "gpu_ram": 24564,
        "gpu_total_ram": 49128,
        "dph_base": 0.7,
        "dph_total": 0.7123456789,
        "min_bid": 0.4,
        "geolocation": "California, US",
        "rentable": True,
        "verification": "verified",
        **changes,
    }


def lambda_entry(**changes: Any) -> dict[str, Any]:
    machine = {
        "name": "gpu_8x_h100_sxm5",
        "description": "8x H100 (80 GB SXM5)",
        "gpu_description": "H100 (80 GB SXM5)",
        "price_cents_per_hour": 2392,
        "specs": {"vcpus": 208, "memory_gib": 1800, "storage_gib": 22528, "gpus": 8},
    }
    return {
        "instance_type": {**machine, **changes},
        "regions_with_capacity_available": [{"name": "us-west-3", "description": "Utah, USA"}],
    }


GPUHUNT_HEADER = "instance_name location price cpu memory gpu_vendor gpu_count gpu_name gpu_memory spot disk_size flags".split()


def gpuhunt_zip(**files: list[list[object]]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("version", "20261114")
        for name, rows in files.items():
            archive.writestr(f"{name}.csv", table(GPUHUNT_HEADER, rows))
    return packed.getvalue()


def dumped(document: object) -> bytes:
    return json.dumps(document).encode()
