package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	socketSuffix = ".sock"
	socketMode   = 0o600

	// maxSocketPath is the most bytes that a socket's path may have:
	// sun_path has 108 on Linux and 104 elsewhere, one of them for the NUL.
	maxSocketPath = 103

	// maxSockets bounds how many files of a runtime folder are looked at.
	maxSockets = 256

	// dialTimeout is enough for a server on this machine; connecting to a
	// UNIX socket waits only while its backlog is full.
	dialTimeout = time.Second

	// lockTries and lockPause bound the wait for another process that starts
	// or stops in the same folder, which takes it a moment: a second in all.
	lockTries = 50
	lockPause = 20 * time.Millisecond
)

// errInUse is wrapped by the error for a socket that a live process serves.
var errInUse = errors.New("a running server answers on it")

// listenUnix listens on a socket that only its owner can open. The socket that
// a dead process left behind is replaced; a live one and any other file are not.
func listenUnix(path string) (*listener, error) {
	switch {
	case path == "":
		return nil, errors.New("admin address \"unix:\" names no socket: write unix:/path")
	case len(path) > maxSocketPath:
		return nil, fmt.Errorf("the path of the admin socket %s has %d bytes, but systems allow %d: name a shorter one with --admin unix:/path",
			path, len(path), maxSocketPath)
	}
	if unlock, err := lockFolder(filepath.Dir(path)); err == nil {
		defer unlock()
	} // else without: it only helps servers that start in the same moment, and other users could hold it for ever
	if err := removeDead(path); err != nil {
		return nil, fmt.Errorf("listening on the admin socket %s: %w", path, err)
	}
	l, err := bind(path)
	if err != nil {
		return nil, fmt.Errorf("listening on the admin socket: %w", err)
	}
	info, err := os.Lstat(path)
	if err == nil && info.Mode().Perm() != socketMode {
		err = os.Chmod(path, socketMode) // bind could not do it on this system
	}
	if err != nil {
		l.Close()
		_ = os.Remove(path) // the first error is the one to tell
		return nil, fmt.Errorf("setting the mode of the admin socket: %w", err)
	}
	return &listener{Listener: l, addr: unixPrefix + path, cleanup: sync.OnceFunc(func() { removeOwn(path, info) })}, nil
}

// bind makes the socket's file. On Linux the file gets the mode that the
// descriptor has before it is bound (less the umask), so that there is no
// moment in which others could connect.
func bind(path string) (*net.UnixListener, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(restrict)
	}}
	l, err := lc.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	ul, ok := l.(*net.UnixListener)
	if !ok {
		l.Close()
		return nil, fmt.Errorf("listening on %s gave a %T", path, l)
	}
	// By then the path may belong to another server: removeOwn looks first.
	ul.SetUnlinkOnClose(false)
	return ul, nil
}

// removeDead removes a socket that nobody serves. The caller holds the lock of
// its folder: between bind and listen, a live socket refuses connections too.
func removeDead(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return errors.New("a file that is not a socket is in the way")
	}
	alive, err := answers(path)
	if err != nil {
		return fmt.Errorf("asking whether a server runs there: %w", err)
	}
	if alive {
		return errInUse
	}
	return os.Remove(path)
}

// answers reports whether a process listens on a socket.
func answers(path string) (bool, error) {
	c, err := net.DialTimeout("unix", path, dialTimeout)
	if err == nil {
		c.Close()
		return true, nil
	}
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return false, err
}

// removeOwn removes the socket unless another process has put its own there.
func removeOwn(path string, own fs.FileInfo) {
	unlock, err := lockFolder(filepath.Dir(path))
	if err != nil {
		return // a socket left behind is replaced by the next server
	}
	defer unlock()
	if now, err := os.Lstat(path); err == nil && os.SameFile(own, now) {
		_ = os.Remove(path) // as above: one that stays is replaced later
	}
}

// removeDeadIn clears a runtime folder of the sockets of dead processes, where
// that can be done: they are in nobody's way.
func removeDeadIn(folder string) {
	unlock, err := lockFolder(folder)
	if err != nil {
		return
	}
	defer unlock()
	paths, _ := sockets(folder)
	for _, path := range paths {
		// What is alive stays, what cannot be removed is in nobody's way.
		_ = removeDead(path)
	}
}

// sockets lists the files in a folder that look like admin sockets.
func sockets(folder string) ([]string, error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(maxSockets)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if e.Type() == fs.ModeSocket && strings.HasSuffix(e.Name(), socketSuffix) {
			paths = append(paths, filepath.Join(folder, e.Name()))
		}
	}
	return paths, nil
}

// lockFolder keeps other millrace processes from making and removing sockets
// in a folder.
func lockFolder(folder string) (unlock func(), err error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	for range lockTries {
		if err = tryLock(f); err == nil {
			return func() { f.Close() }, nil // which gives the lock up
		}
		time.Sleep(lockPause)
	}
	f.Close()
	return nil, fmt.Errorf("locking the folder %s: %w", folder, err)
}
