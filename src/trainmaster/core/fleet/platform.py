"""Platforms: the kinds of host that a fleet is built from, with the figures that placement and the twin need.

The catalogue is built in, because a name such as `grand-teton` in a fleet file should mean the same everywhere. Each
figure has its source beside it; where a vendor publishes none, the comment says what it was taken from.
"""

from typing import Final

from trainmaster.core.base.value import Value


class Platform(Value):
    """A kind of host. Figures are per host unless the name says otherwise."""

    name: str
    gpu_model: str
    """Empty: no GPUs."""
    gpus_per_host: int
    gpu_memory_gib: int
    """Of one GPU."""
    nics_per_host: int
    """On the training fabric; storage and management have their own."""
    nic_gbps: int
    host_memory_gib: int
    power_w: int
    """Most that a host draws."""
    rack_style: str
    hosts_per_rack: int
    slots_per_host: int
    """Ranks that a host is meant to run: one a GPU, or what the processors carry where there is none."""


GRAND_TETON: Final = Platform(
    name="grand-teton",
    gpu_model="H100 SXM5 80GB",
    gpus_per_host=8,  # Dubey et al., The Llama 3 Herd of Models, 2024, section 3.3
    gpu_memory_gib=80,  # same
    nics_per_host=8,  # one back-end NIC a GPU: Gangidi et al., RDMA over Ethernet for Distributed AI Training, 2024
    nic_gbps=400,  # Llama 3, section 3.3
    host_memory_gib=2048,  # OCP Grand Teton specification: up to 2 TB of DDR5
    power_w=10_200,  # none published; that of a DGX H100, which carries the same GPU board
    rack_style="Open Rack v3",
    hosts_per_rack=2,  # Llama 3, section 3.3: 16 GPUs in two hosts share a rack and its switch
    slots_per_host=8,
)

DGX_H100: Final = Platform(
    name="dgx-h100",
    gpu_model="H100 SXM5 80GB",
    gpus_per_host=8,  # NVIDIA DGX H100 data sheet, as all figures below
    gpu_memory_gib=80,
    nics_per_host=8,  # ConnectX-7
    nic_gbps=400,
    host_memory_gib=2048,
    power_w=10_200,
    rack_style="19 inch",
    hosts_per_rack=4,  # DGX SuperPOD reference architecture: four systems in a 40 kW rack
    slots_per_host=8,
)

LAPTOP: Final = Platform(
    name="laptop",
    gpu_model="",
    gpus_per_host=0,
    gpu_memory_gib=0,
    nics_per_host=0,  # hosts are processes of one machine and talk over its loopback
    nic_gbps=0,
    host_memory_gib=16,  # a usual machine; only the twin reads it
    power_w=65,  # a usual power supply
    rack_style="desk",
    hosts_per_rack=1,
    slots_per_host=8,
)

SERVER: Final = Platform(
    name="server",
    gpu_model="",
    gpus_per_host=0,
    gpu_memory_gib=0,
    nics_per_host=2,  # what has no GPUs: storage servers, switches, controllers; the figures are those of usual ones
    nic_gbps=100,
    host_memory_gib=256,
    power_w=800,
    rack_style="19 inch",
    hosts_per_rack=16,
    slots_per_host=8,
)

PLATFORMS: Final = {platform.name: platform for platform in (GRAND_TETON, DGX_H100, LAPTOP, SERVER)}
