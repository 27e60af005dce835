package subject

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

const (
	// firstPort is where ports for servers begin: below are those that well-known
	// services have.
	firstPort = 10_000
	// portTries is how many of them are tried.
	portTries = 100
	// fewestPorts is how many there must be to choose from.
	fewestPorts = 1000
	// startTries is how often a server is started at another address because
	// somebody else took the one that was free.
	startTries = 3
)

// FreePort is a TCP port of 127.0.0.1 that nobody listens at right now. It is one
// that the kernel does not hand out to connections by itself: a load opens so
// many of them that a port of those would often be lost again before its server
// has started.
func FreePort() (int, error) {
	if end := firstEphemeral(); end-firstPort >= fewestPorts {
		for range portTries {
			port := firstPort + rand.IntN(end-firstPort) // any port will do
			l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port))
			if err == nil {
				return port, l.Close()
			}
		}
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("looking for a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// FreeAddress is 127.0.0.1 with a [FreePort].
func FreeAddress() (string, error) {
	port, err := FreePort()
	if err != nil {
		return "", err
	}
	return "127.0.0.1:" + strconv.Itoa(port), nil
}

// Retry calls a function that starts a server at a free address, and again where
// somebody else took the address in between, three times at most.
func Retry[T any](ctx context.Context, start func() (T, error)) (started T, err error) {
	for range startTries {
		if started, err = start(); err == nil || ctx.Err() != nil || !AddressTaken(err) {
			break
		}
	}
	return started, err
}

// StartFree starts a command at a free address, and at another where that was taken in
// between. ready is how long it may take until it listens.
func StartFree(ctx context.Context, ready time.Duration, command func(address string) (*exec.Cmd, error)) (*Process, error) {
	return Retry(ctx, func() (*Process, error) {
		address, err := FreeAddress()
		if err != nil {
			return nil, err
		}
		cmd, err := command(address)
		if err != nil {
			return nil, err
		}
		return Start(ctx, cmd, address, ready)
	})
}

// firstEphemeral is the first port that the kernel hands out to connections; 0
// where that is not known.
func firstEphemeral() int {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return 0
	}
	var first, last int
	if _, err := fmt.Sscan(strings.TrimSpace(string(text)), &first, &last); err != nil {
		return 0
	}
	return first
}

// AddressTaken reports whether a server could not start because somebody else
// had its address: another one may do.
func AddressTaken(err error) bool {
	if err == nil {
		return false
	}
	text := strings.ToLower(err.Error())
	for _, message := range []string{"address already in use", "somebody listens at", "connection in use:"} { // the last by gunicorn
		if strings.Contains(text, message) {
			return true
		}
	}
	return false
}
