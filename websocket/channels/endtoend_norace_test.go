//go:build !race

package channels_test

const (
	numClients  = 200
	natsClients = 60 // each comes back about three times a second
)
