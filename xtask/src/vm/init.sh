#!/bin/busybox sh
# The guest's only process of its own: mounts what tests look at, runs the command, says how it ended.
export PATH=/bin:/usr/bin:/applets HOME=/ TERM=dumb WHYIDLE_TESTS_BUILT=1 WHYIDLE_BINARY=/bin/whyidle
/bin/busybox mkdir -p /applets /proc /sys /dev /tmp
/bin/busybox --install -s /applets
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t tracefs tracefs /sys/kernel/tracing
mount -t tmpfs cgroup /sys/fs/cgroup
mkdir /sys/fs/cgroup/cpu /sys/fs/cgroup/unified
mount -t cgroup -o cpu cpu /sys/fs/cgroup/cpu
mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified
ip link set lo up
for module in /modules/*.ko; do
    [ -e "$module" ] && insmod "$module"
done
# Where there is a peer to reach.
[ -e /sys/class/net/eth0 ] && ip addr add 10.0.2.15/24 dev eth0 && ip link set eth0 up
# In the place of the NVIDIA driver.
if insmod /standin.ko; then
    mknod /dev/nvidia0 c 195 0
    mknod /dev/nvidiactl c 195 255
    mknod /dev/nvidia-uvm c "$(sed -n 's/^ *\([0-9]*\) nvidia-uvm$/\1/p' /proc/devices)" 0
fi
mkdir -p '@SCRATCH@'
mount -t ext4 /dev/vda '@SCRATCH@' || echo "no disk: /dev/vda cannot be mounted"
sh /command < /dev/null
status=$?
sync
echo
echo "@MARK@$status"
poweroff -f
