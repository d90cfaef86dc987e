#!/bin/busybox sh
# First process of a guest: loads the modules, puts the host's files below an overlay in memory, and
# hands over to setup, which lies in the folder that guest and host share.
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
exec >/dev/console 2>&1

give_up() { echo "guest: $*"; $b reboot -f; }

# Some are for other processors, and their place is taken by another module.
for module in /modules/*.ko; do $b insmod "$module" || echo "guest: without $module"; done

plan9=trans=virtio,version=9p2000.L,msize=512000
$b mount -t 9p -o ro,cache=loose,$plan9 files /files || give_up "no files"
$b mount -t tmpfs -o size=75%,mode=755 memory /memory
$b mkdir /memory/changes /memory/work
$b mount -t overlay -o lowerdir=/files,upperdir=/memory/changes,workdir=/memory/work root /root ||
  give_up "no overlay"

$b mount -t tmpfs -o mode=755 run /root/run
$b mkdir /root/run/guest
$b cp $b /root/run/busybox
$b mount -t 9p -o rw,cache=none,$plan9 control /root/run/guest || give_up "no shared folder"
for d in dev proc sys; do $b mkdir -p /root/$d; $b mount -o move /$d /root/$d; done
exec $b switch_root /root /bin/bash /run/guest/setup
