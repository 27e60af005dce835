//go:build !unix

package engine

const nonblock = 0
