//go:build !single

package main

// servers are all, by the name that -server takes.
func servers() map[string]newServer {
	return map[string]newServer{
		"nethttp": netHTTP, "nethttp-plain": netHTTPPlain, "sendfile": sendfile, "page": page,
		"gin": ginServer, "fasthttp": fastHTTP, "fasthttp-plain": fastHTTPPlain,
		"ldflags": ldflags, "millrace": millraceStatic,
	}
}
