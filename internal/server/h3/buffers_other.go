//go:build !unix

package h3

// checkBuffers does nothing where the size of buffers cannot be asked for.
func (*Listener) checkBuffers() {}
