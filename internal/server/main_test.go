package server

import (
	"flag"
	"strconv"
	"testing"
)

// The parallel tests here wait for deadlines, and all can do so at once,
// however few processors there are.
const waiting = 64

func TestMain(m *testing.M) {
	flag.Parse()
	fuzz := flag.Lookup("test.fuzz")
	if f := flag.Lookup("test.parallel"); f != nil && fuzz.Value.String() == "" { // else it is the number of processes
		if err := f.Value.Set(strconv.Itoa(waiting)); err != nil {
			panic(err)
		}
	}
	m.Run()
}
