package main

import (
	"testing"

	"millrace/bench/subjects/internal/wspeer/peertest"
)

func TestEcho(t *testing.T) { peertest.Echo(t, handler()) }

func TestBroadcast(t *testing.T) { peertest.Broadcast(t, newHub()) }
