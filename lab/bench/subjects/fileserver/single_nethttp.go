//go:build single && nethttp

package main

// servers are those of an executable with net/http alone.
func servers() map[string]newServer {
	return map[string]newServer{"nethttp": netHTTP, "nethttp-plain": netHTTPPlain, "sendfile": sendfile}
}
