//go:build race

package channels_test

// There are less: handshakes of TLS take ten times as long.
const (
	numClients  = 40
	natsClients = 20
)
