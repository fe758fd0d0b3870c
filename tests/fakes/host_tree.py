"""A host as its `/sys` and `/proc` show it, below a directory."""

from pathlib import Path

from tests.fakes.nvml import device


def put(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


def port(root: Path, name: str, state: str = "4: ACTIVE", physical: str = "5: LinkUp", **counters: int) -> None:
    """An InfiniBand port, with its counters at zero unless told otherwise."""
    base = f"sys/class/infiniband/{name}/ports/1"
    for leaf, text in (("state", state), ("phys_state", physical), ("rate", "400 Gb/sec (4X NDR)"),
                       ("link_layer", "InfiniBand")):  # fmt: skip
        put(root, f"{base}/{leaf}", text)
    for leaf in ("link_downed", "symbol_error", "link_error_recovery", "port_rcv_errors", *counters):
        put(root, f"{base}/counters/{leaf}", str(counters.get(leaf, 0)))


def link(
    root: Path, name: str, state: str = "up", changes: int = 2, flags: str = "0x1003", speed: str = "25000"
) -> None:
    """An Ethernet port with a card below it."""
    base = f"sys/class/net/{name}"
    for leaf, text in (("operstate", state), ("carrier_changes", str(changes)), ("flags", flags), ("speed", speed)):
        put(root, f"{base}/{leaf}", text)
    (root / base / "device").mkdir(exist_ok=True)


def healthy(root: Path) -> Path:
    """A host that is well: two GPUs, cards, memory, disks, zones, and totals from years ago."""
    for bus in ("1b", "3d"):
        device(root, f"0000:{bus}:00.0", "0x030200", current_link_width="16", max_link_width="16", numa_node="0",
               current_link_speed="2.5 GT/s PCIe", max_link_speed="32.0 GT/s PCIe",
               aer_dev_correctable="RxErr 900000\nTOTAL_ERR_COR 900000", aer_dev_fatal="TOTAL_ERR_FATAL 7")  # fmt: skip
    device(root, "0000:5e:00.0", "0x020700", "0x15b3", current_link_width="16", max_link_width="16",
           current_link_speed="32.0 GT/s PCIe", max_link_speed="32.0 GT/s PCIe")  # fmt: skip
    for name in ("mlx5_0", "mlx5_1"):
        port(root, name, symbol_error=65535, link_downed=9)
    link(root, "eth0")
    for module in ("dimm0", "dimm1"):
        base = f"sys/devices/system/edac/mc/mc0/{module}"
        put(root, f"{base}/dimm_label", f"CPU0_{module}")
        put(root, f"{base}/dimm_ce_count", "12")
        put(root, f"{base}/dimm_ue_count", "0")
    zone = "sys/class/thermal/thermal_zone0"
    for leaf, text in (
        ("type", "x86_pkg_temp"),
        ("temp", "61000"),
        ("trip_point_0_temp", "95000"),
        ("trip_point_0_type", "critical"),
        ("trip_point_1_temp", "0"),
        ("trip_point_1_type", "passive"),
    ):
        put(root, f"{zone}/{leaf}", text)
    put(root, "sys/devices/system/cpu/cpu0/topology/physical_package_id", "0")
    put(root, "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count", "40000")
    put(root, "sys/devices/system/cpu/online", "0-63")
    put(root, "sys/devices/system/cpu/present", "0-63")
    put(root, "sys/devices/system/node/node0/cpulist", "0-63")
    put(root, "sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:  1056761248 kB\nNode 0 MemFree: 5 kB")
    put(root, "sys/block/nvme0n1/size", "7501476528")
    put(root, "sys/block/nvme0n1/device/serial", "S6ESNC0T   ")
    put(root, "sys/block/loop0/size", "0")
    put(root, "sys/class/dmi/id/product_serial", "CHASSIS-1")
    put(root, "proc/self/mounts", "/dev/nvme0n1p2 / ext4 rw,relatime 0 0\nproc /proc proc rw 0 0\n"
        "server:/home /mnt/a\\040b nfs4 rw,vers=4.2 0 0\nsquash /snap squashfs ro 0 0")  # fmt: skip
    put(root, "etc/fstab", "# disks\nUUID=1 / ext4 defaults 0 1")
    (root / "mnt/a b").mkdir(parents=True)
    return root
