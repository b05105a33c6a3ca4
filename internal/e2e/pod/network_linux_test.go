//go:build long

package pod

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// up turns a network interface on.
func up(name string) error {
	return ask(name, unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP); return nil })
}

// address gives a network interface an address in a network of 256, and turns it on.
func address(name string, ip netip.Addr) error {
	set := func(ip []byte) func(*unix.Ifreq) error {
		return func(r *unix.Ifreq) error { return r.SetInet4Addr(ip) }
	}
	if err := ask(name, unix.SIOCSIFADDR, set(ip.AsSlice())); err != nil {
		return err
	}
	if err := ask(name, unix.SIOCSIFNETMASK, set([]byte{255, 255, 255, 0})); err != nil {
		return err
	}
	return up(name)
}

// ask makes one request to the kernel about an interface of this network namespace.
func ask(name string, what uint, fill func(*unix.Ifreq) error) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq(name)
	if err == nil {
		err = fill(request)
	}
	if err == nil {
		err = unix.IoctlIfreq(socket, what, request)
	}
	if err != nil {
		return fmt.Errorf("configuring the network interface %s: %w", name, err)
	}
	return nil
}

// cable makes a pair of network interfaces: one here, the other in the network namespace of a process.
func cable(here, there string, pid int) error {
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	if err := unix.Sendto(socket, newLink(here, there, pid), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(socket, answer, 0)
	if err != nil || n < unix.NLMSG_HDRLEN+4 {
		return fmt.Errorf("connecting two network namespaces: %d bytes, %w", n, err)
	}
	if code := int32(native.Uint32(answer[unix.NLMSG_HDRLEN:])); code != 0 {
		return fmt.Errorf("connecting two network namespaces (veth): %w", unix.Errno(-code))
	}
	return nil
}

var native = binary.NativeEndian

// newLink is the message of rtnetlink(7) that makes a veth pair.
func newLink(here, there string, pid int) []byte {
	info := make([]byte, unix.SizeofIfInfomsg)
	peer := concat(info, attribute(unix.IFLA_IFNAME, []byte(there+"\x00")), attribute(unix.IFLA_NET_NS_PID, native.AppendUint32(nil, uint32(pid))))
	const vethInfoPeer = 1
	kind := attribute(unix.IFLA_INFO_KIND, []byte("veth\x00"))
	data := attribute(unix.IFLA_INFO_DATA, attribute(vethInfoPeer, peer))
	body := concat(info, attribute(unix.IFLA_IFNAME, []byte(here+"\x00")), attribute(unix.IFLA_LINKINFO, concat(kind, data)))
	head := make([]byte, unix.NLMSG_HDRLEN)
	native.PutUint32(head, uint32(len(head)+len(body)))
	native.PutUint16(head[4:], unix.RTM_NEWLINK)
	native.PutUint16(head[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	native.PutUint32(head[8:], 1)
	return concat(head, body)
}

func attribute(kind uint16, value []byte) []byte {
	out := native.AppendUint16(nil, uint16(4+len(value)))
	out = native.AppendUint16(out, kind)
	out = append(out, value...)
	return append(out, make([]byte, -len(out)&3)...)
}

func concat(parts ...[]byte) (out []byte) {
	for _, part := range parts {
		out = append(out, part...)
	}
	return out
}

// beSandbox holds a pod's network: loopback, and an interface that has the pod's address and leads to the node.
func beSandbox(number string) error {
	err := cable("eth0", "pod"+number, os.Getppid())
	if err == nil {
		err = up("lo")
	}
	if err == nil {
		err = address("eth0", netip.MustParseAddr(podNetwork+number+".2"))
	}
	if err != nil {
		return err
	}
	fmt.Println(sandboxReady)
	select {} // until it is told to end
}

const (
	podNetwork   = "10.244."
	sandboxReady = "the pod's network is there"
)
