package handover

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// Notify tells systemd about this service, as sd_notify(3) does: "READY=1", or
// "MAINPID=4711" for a successor, without which systemd would take the end of the
// old process for the end of the service. It does nothing under another parent.
func Notify(getenv func(string) string, state string) error {
	path := getenv("NOTIFY_SOCKET") // "@" begins the name of an abstract one
	if path == "" {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("telling systemd %s: %w", state, err)
	}
	_, err = c.Write([]byte(state))
	if err = errors.Join(err, c.Close()); err != nil {
		return fmt.Errorf("telling systemd %s: %w", state, err)
	}
	return nil
}

// NotifySystemd is Notify for this process.
func NotifySystemd(state string) error { return Notify(os.Getenv, state) }
