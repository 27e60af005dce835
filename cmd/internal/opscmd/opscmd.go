// Package opscmd has the verbs with which an operator looks after a running server:
// its certificates, figures and slow requests, closing its sites for a while, and
// hashes and signatures for who is let in.
package opscmd
