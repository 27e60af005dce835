package guard

import (
	"net"
	"strings"
)

// RedirectPort is the port that plain requests are sent to: that of the first
// TLS listener with one.
func RedirectPort(addrs []string) string {
	for _, a := range addrs {
		if _, port, err := net.SplitHostPort(a); err == nil && !strings.HasPrefix(a, "unix:") {
			return port
		}
	}
	return "443"
}
