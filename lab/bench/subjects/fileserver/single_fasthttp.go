//go:build single && fasthttp

package main

// servers are those of an executable with fasthttp alone.
func servers() map[string]newServer {
	return map[string]newServer{"fasthttp": fastHTTP, "fasthttp-plain": fastHTTPPlain}
}
