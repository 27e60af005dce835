package packcmd

import (
	"runtime"
	"runtime/debug"
	"testing"
)

// TestOtherPlatform: what is packed for another machine is not said to run here.
func TestOtherPlatform(t *testing.T) {
	of := func(system, processor string) *debug.BuildInfo {
		return &debug.BuildInfo{Settings: []debug.BuildSetting{{Key: "GOARCH", Value: processor}, {Key: "GOOS", Value: system}}}
	}
	for _, c := range []struct {
		info *debug.BuildInfo
		want string
	}{
		{nil, ""},
		{of(runtime.GOOS, runtime.GOARCH), ""},
		{of("plan9", runtime.GOARCH), "plan9/" + runtime.GOARCH},
		{of(runtime.GOOS, "mips"), runtime.GOOS + "/mips"},
	} {
		if got := otherPlatform(c.info); got != c.want {
			t.Errorf("%v: %q, want %q", c.info, got, c.want)
		}
	}
}
