package h3

import (
	"log/slog"
	"net"

	"millrace/internal/server"
)

// CheckBuffers is what a listener says about the buffers of its socket.
func CheckBuffers(socket *net.UDPConn, errors *slog.Logger) {
	(&Listener{host: server.HTTP3Host{Socket: socket, Errors: errors}}).checkBuffers()
}
