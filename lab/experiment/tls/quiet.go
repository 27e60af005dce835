package tls

// quietConnections are how many there are of those on which nothing happens, and
// quietConnectionsQuick in a quick run.
const (
	quietConnections      = 5000
	quietConnectionsQuick = 1000
)
