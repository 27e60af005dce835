package sandbox

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// errThreads: see reachable.
var errThreads = errors.New("only a program that `make build` has built confines all of its threads")

// probe tries what is forbidden. failed are the reasons for what did not work.
func probe(n Needs, failed map[string]error) Report {
	var r Report
	for _, p := range []struct {
		name string
		try  func() error
	}{
		{Privileges, tryPrivileges},
		{NoCaps, tryCapabilities},
		{Files, tryFiles},
		{Sockets, trySockets},
		{Peeking, tryPeeking},
		{Network, func() error { return tryNetwork(n.Network) }},
	} {
		m := Measure{Name: p.name}
		if err := p.try(); err != nil {
			if because := failed[p.name]; because != nil {
				err = because
			}
			m.Why = err.Error()
		}
		r = append(r, m)
	}
	return r
}

func tryPrivileges() error {
	if on, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || on != 1 {
		return errors.New("the kernel does not know it")
	}
	return nil
}

func tryCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	if err := unix.Capget(&header, &has[0]); err != nil {
		return fmt.Errorf("reading capabilities: %w", err)
	}
	if has != [2]unix.CapUserData{} {
		return errors.New("some are left")
	}
	return nil
}

// tryFiles: what is always there, and may be read by everyone where nothing
// forbids it.
func tryFiles() error {
	fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd) // nothing was written
		return errors.New("the kernel has no Landlock, or it is switched off")
	}
	return nil
}

func trySockets() error {
	for _, family := range []int{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK} {
		fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			_ = unix.Close(fd) // nothing was sent
		}
		if !errors.Is(err, unix.EPERM) {
			return errors.New("one could be opened")
		}
	}
	return nil
}

// tryPeeking asks for nothing of a process that is not there: ESRCH where it is
// allowed, EPERM where the filter says no.
func tryPeeking() error {
	const nobody = 1 << 30
	if _, err := unix.ProcessVMReadv(nobody, nil, nil, 0); !errors.Is(err, unix.EPERM) {
		return errors.New("process_vm_readv is allowed")
	}
	if err := unix.PtraceAttach(nobody); !errors.Is(err, unix.EPERM) {
		return errors.New("ptrace is allowed")
	}
	return nil
}

func tryNetwork(parents string) error {
	switch id := NetworkID(); {
	case id == "" || parents == "":
		return errors.New("it cannot be told: /proc is not there")
	case id == parents:
		return errors.New("the kernel gives this user no namespaces")
	}
	return nil
}
