//go:build !unix

package convert

import "time"

// CPUTime is not known here.
func CPUTime() time.Duration { return 0 }
