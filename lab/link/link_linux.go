package link

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A Link is a network of its own with one link. Its methods may be called by
// several goroutines.
type Link struct {
	space  *os.File // the namespace
	device *os.File
	random *rand.Rand // of the reader alone
	tcp    string     // how TCP finds its rate there
	now    atomic.Pointer[Conditions]

	wait                     sync.WaitGroup // for the goroutines that carry
	delivered, lost, crowded atomic.Uint64
}

// Open makes one that loses nothing and takes no time yet. The same packets are
// lost for the same seed. It needs the rights of root, if only in a user namespace
// as of `unshare -r`, and /dev/net/tun; else the error wraps [ErrUnsupported].
func Open(seed uint64) (*Link, error) {
	l := &Link{random: rand.New(rand.NewPCG(seed, 0x6c696e6b))}
	l.now.Store(&Conditions{})
	err := alone(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("%w: making a network namespace: %w (run it as root, or with `unshare -r`)", ErrUnsupported, err)
		}
		if l.space, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
		if l.device, err = tun(); err != nil {
			return fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
		l.tcp = setReno()
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, l.closeFiles())
	}
	under := make(chan packet, mostUnderWay)
	l.wait.Go(func() { l.take(under) })
	l.wait.Go(func() { l.give(under) })
	return l, nil
}

// alone runs f on a thread that ends with it: what f does to the thread's
// namespaces is nobody else's.
func alone(f func() error) error {
	result := make(chan error, 1)
	go func() { // ends with f, which is waited for
		runtime.LockOSThread() // for ever
		result <- f()
	}()
	return <-result
}

// Within runs f, and the sockets that f opens on its own goroutine are in the
// link's network.
func (l *Link) Within(f func() error) error {
	return alone(func() error {
		if err := unix.Setns(int(l.space.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering the network namespace: %w", err)
		}
		return f()
	})
}

// Command is a command that runs in the link's network, by util-linux's nsenter.
func (l *Link) Command(name string, args ...string) *exec.Cmd {
	space := fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), l.space.Fd())
	return exec.CommandContext(context.Background(), "nsenter", append([]string{space, name}, args...)...)
}

// Set says what happens to packets from now on.
func (l *Link) Set(c Conditions) { l.now.Store(&c) }

// TCP is how TCP finds its rate in the link's network: "reno" where that can be had.
func (l *Link) TCP() string { return l.tcp }

// setReno has TCP find its rate by Reno (RFC 5681), and returns what is in force.
// Of two protocols on a link that loses packets, one with another algorithm for that
// would be another measurement; and QUIC's is Reno (RFC 9002, 7). Every kernel has
// it, and lets it be chosen in a namespace.
func setReno() string {
	const file = "/proc/sys/net/ipv4/tcp_congestion_control" // of the reader's network
	_ = os.WriteFile(file, []byte("reno"), 0)                // what is read next tells
	text, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(text))
}

// Counts say what became of packets.
func (l *Link) Counts() Counts {
	return Counts{Delivered: l.delivered.Load(), Lost: l.lost.Load(), Crowded: l.crowded.Load()}
}

// Close ends the link. The network is gone when the last process has left it.
func (l *Link) Close() error {
	err := l.closeFiles()
	l.wait.Wait()
	return err
}

func (l *Link) closeFiles() error {
	var err error
	for _, f := range []*os.File{l.device, l.space} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// A packet is one under way.
type packet struct {
	due   time.Time
	bytes []byte
}

// take reads what was sent and decides what becomes of it. It ends with the device.
func (l *Link) take(under chan<- packet) {
	defer close(under)
	buffer := make([]byte, mtu)
	for {
		n, err := l.device.Read(buffer)
		if err != nil {
			return
		}
		now := l.now.Load()
		switch {
		case !exchange(buffer[:n]):
			continue
		case l.random.Float64() < now.Loss:
			l.lost.Add(1)
			continue
		}
		select {
		case under <- packet{time.Now().Add(now.Delay), append([]byte(nil), buffer[:n]...)}:
		default:
			l.crowded.Add(1)
		}
	}
}

// give hands packets back when they are due. It ends with take.
func (l *Link) give(under <-chan packet) {
	for p := range under {
		time.Sleep(time.Until(p.due))
		if _, err := l.device.Write(p.bytes); err == nil { // the kernel drops, too
			l.delivered.Add(1)
		}
	}
}

// tun makes the device, and brings it and the loopback interface up.
func tun() (device *os.File, err error) {
	const name, queue = "link", 4096
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("opening /dev/net/tun: %w", err)
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd) // it was never used
		}
	}()
	request, err := unix.NewIfreq(name)
	if err != nil {
		return nil, fmt.Errorf("naming the device: %w", err)
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return nil, fmt.Errorf("making a TUN device: %w", err)
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening a socket: %w", err)
	}
	defer unix.Close(socket) //nolint:errcheck // it has nothing to say
	set := func(name string, what uint, fill func(*unix.Ifreq) error) {
		if err != nil {
			return
		}
		var r *unix.Ifreq
		if r, err = unix.NewIfreq(name); err == nil {
			if err = fill(r); err == nil {
				err = unix.IoctlIfreq(socket, what, r)
			}
		}
	}
	up := func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP); return nil }
	near, mask := netip.MustParseAddr(Near).As4(), [4]byte{255, 255, 255, 0}
	set("lo", unix.SIOCSIFFLAGS, up)
	set(name, unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(near[:]) })
	set(name, unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr(mask[:]) })
	set(name, unix.SIOCSIFMTU, func(r *unix.Ifreq) error { r.SetUint32(mtu); return nil })
	set(name, unix.SIOCSIFFLAGS, up)
	if err != nil {
		return nil, fmt.Errorf("setting up the network: %w", err)
	}
	// Root of a user namespace may not, and has the usual 500 packets.
	set(name, unix.SIOCSIFTXQLEN, func(r *unix.Ifreq) error { r.SetUint32(queue); return nil })
	err = nil
	return os.NewFile(uintptr(fd), "/dev/net/tun"), nil
}
