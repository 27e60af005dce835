package admin

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"

	"millrace/internal/process/handover"
	"millrace/internal/wire/netset"
)

// inherit is the listener of a predecessor's socket, nil if there is none that
// serves where the options say. Until [Admin.Serve] the path is the predecessor's,
// which goes on if this process fails; leave removes one that nobody uses then.
func inherit(f *os.File, where string) (l *listener, leave func(), err error) {
	if f == nil {
		return nil, nil, nil
	}
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, nil, fmt.Errorf("taking the admin socket over: %w", err)
	}
	switch at := ln.Addr().(type) {
	case *net.UnixAddr:
		info, err := os.Lstat(at.Name)
		if err != nil {
			break // it is nobody's any more
		}
		remove := sync.OnceFunc(func() { removeOwn(at.Name, info) })
		if where == "" || where == unixPrefix+at.Name || sameSocket(info, where) {
			return &listener{Listener: ln, addr: unixPrefix + at.Name, cleanup: remove}, nil, nil
		}
		leave = remove
	case *net.TCPAddr:
		if sameTCP(ln, at, where) {
			return tcpListener(ln, at, where), nil, nil
		}
	}
	_ = ln.Close()
	return nil, leave, nil
}

// sameSocket reports whether the options name a socket by another path.
func sameSocket(info os.FileInfo, where string) bool {
	path, ok := strings.CutPrefix(where, unixPrefix)
	if !ok {
		return false
	}
	other, err := os.Lstat(path)
	return err == nil && os.SameFile(info, other)
}

// sameTCP reports whether a socket is at the address that the options name, for
// the same families. :9000 is IPv4 alone on a machine without IPv6.
func sameTCP(ln net.Listener, at *net.TCPAddr, where string) bool {
	want, err := net.ResolveTCPAddr("tcp", where)
	if err != nil || want.Port != at.Port {
		return false
	}
	of, err := netset.FamilyOf(where)
	have := netset.FamilyOfSocket(ln, at)
	if err == nil && of == netset.Both {
		return at.IP.IsUnspecified() && have != netset.IPv6
	}
	return err == nil && of == have && want.IP.Equal(at.IP)
}

// File is a descriptor of the listening socket, for another process, to which its
// path belongs from now on; nil where the listener is off.
func (a *Admin) File() (*os.File, error) {
	if a.off() {
		return nil, nil
	}
	c, ok := a.socket.(syscall.Conn)
	if !ok {
		return nil, nil
	}
	f, err := handover.Duplicate(c)
	if err != nil {
		return nil, fmt.Errorf("passing the admin socket on: %w", err)
	}
	a.theirs.Store(true)
	return f, nil
}

// TakeBack says that the other process has failed: the path is ours again.
func (a *Admin) TakeBack() {
	if !a.off() {
		a.theirs.Store(false)
	}
}

// CloseShared is Close for a listener that another process has too: the path of its
// socket stays.
func (a *Admin) CloseShared() error {
	if a.off() {
		return nil
	}
	a.theirs.Store(true)
	return a.Close()
}

// upgrade starts the program anew.
func upgrade(upgrade func() error) http.HandlerFunc {
	var running sync.Mutex
	return func(w http.ResponseWriter, _ *http.Request) {
		if upgrade == nil {
			text(w, http.StatusNotImplemented, "This server cannot start itself anew.\n")
			return
		}
		if !running.TryLock() {
			text(w, http.StatusConflict, "An upgrade is under way already.\n")
			return
		}
		defer running.Unlock()
		if err := upgrade(); err != nil {
			status := http.StatusInternalServerError
			if errors.Is(err, ErrNotNow) {
				status = http.StatusConflict
			}
			text(w, status, err.Error()+"\n")
			return
		}
		text(w, http.StatusOK, "upgraded\n")
	}
}

// ErrNotNow is wrapped by what Deps.Upgrade returns where it may be tried later.
var ErrNotNow = errors.New("not now")
