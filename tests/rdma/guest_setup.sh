#!/bin/bash
# In a guest, on the host's files: makes the network and its RDMA devices, runs the command, and ends
# the guest. See run_in_guest.py.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
busybox=/run/busybox
folder=/run/guest
. $folder/setting
say() { echo "guest: $*" >/dev/console; }

# Should nobody be left to end it.
($busybox sleep $((limit + 30)); $busybox reboot -f) &

mkdir -p /dev/pts /dev/shm
$busybox mount -t devpts devpts /dev/pts
$busybox mount -t tmpfs -o mode=1777 tmpfs /dev/shm
$busybox mount -t tmpfs -o mode=1777 tmpfs /tmp
[[ -e /dev/fd ]] || ln -s /proc/self/fd /dev/fd
ulimit -l unlimited

# Addresses that are kept free for documents, so that nothing of the kind exists elsewhere.
addresses=(192.0.2.1 192.0.2.2)
mtu=4500  # room for the largest packet of RoCE, 4096 bytes of data
for where in all default; do
  echo 0 >/proc/sys/net/ipv4/conf/$where/rp_filter
  echo 1 >/proc/sys/net/ipv4/conf/$where/accept_local
  echo 1 >/proc/sys/net/ipv6/conf/$where/disable_ipv6
done
ip link set lo up

add_device() {  # add_device RXE INTERFACE ADDRESS
  ip link set "$2" mtu $mtu up
  ip addr add "$3/24" dev "$2"
  rdma link add "$1" type rxe netdev "$2" || say "no $1 on $2"
}

if ((ranks == 1)); then
  ip link add wire0 type veth peer name wire1
  add_device rxe0 wire0 ${addresses[0]}
  add_device rxe1 wire1 ${addresses[1]}
  # Both addresses are this guest's own, and would be reached without any wire. So the rule that
  # finds own addresses comes last, behind two that send what is for the other end over the wire.
  for i in 0 1; do
    here=${addresses[i]} there=${addresses[1 - i]}
    ip rule add pref $((10 + i)) iif lo from $here to $there lookup $((100 + i))
    ip route add $there dev wire$i src $here table $((100 + i))
    ip neigh replace $there lladdr "$(cat /sys/class/net/wire$((1 - i))/address)" dev wire$i \
      nud permanent
  done
  ip rule add pref 20 lookup local
  ip rule del pref 0
  export GUEST_DEVICES=rxe0,rxe1 GUEST_WIRE=wire0
else
  for path in /sys/class/net/*; do
    [[ $(readlink "$path/device/driver") == */virtio_net ]] && GUEST_WIRE=${path##*/}
  done
  add_device rxe0 "$GUEST_WIRE" ${addresses[rank]}
  export GUEST_DEVICES=rxe0 GUEST_WIRE
  for ((i = 0; i < 150; ++i)); do
    $busybox ping -c1 -W1 ${addresses[1 - rank]} >/dev/null 2>&1 && break
    $busybox sleep 0.2
  done
fi
export GUEST_RANK=$rank GUEST_RANKS=$ranks
export GUEST_ADDRESS=${addresses[rank]} GUEST_PEER=${addresses[1 - rank]}

say "runs the command after $(cut -d' ' -f1 /proc/uptime) s"
bash $folder/command </dev/null >$folder/stdout 2>$folder/stderr
echo $? >$folder/status.new
mv $folder/status.new $folder/status
# The host ends the guest when it has all results; until then its end of the wire must stay.
$busybox sleep 60
$busybox reboot -f
