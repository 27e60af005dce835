//go:build !unix

package packer

// nonBlocking is not needed: there are no named pipes among files.
const nonBlocking = 0
