package static

import (
	"os"
	"runtime/debug"
	"time"
)

// buildTime dates files that have no date of their own, such as embedded ones:
// they changed when the program was built. That is the later of the commit it
// was built from and the executable's own date; files that were generated for
// the build are newer than the commit, and packaging may set the executable's
// date back. Without either it is the start of the program.
func buildTime() time.Time {
	var built time.Time
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.time" {
				built, _ = time.Parse(time.RFC3339, s.Value)
			}
		}
	}
	if name, err := os.Executable(); err == nil {
		if info, err := os.Stat(name); err == nil && info.ModTime().After(built) {
			built = info.ModTime()
		}
	}
	if now := time.Now(); built.IsZero() || built.After(now) {
		built = now
	}
	return built.UTC().Truncate(time.Second)
}
