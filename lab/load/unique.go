package load

import (
	"bytes"
	"strings"
	"time"
)

// Config.Unique gives each request a number in the query of its path, so that its
// URL is asked for once. Numbers begin at the time in µs: two loads one after the
// other have none in common, as no loop sends a request each µs.

// numberDigits is how many digits there are: enough for µs since 1970 until 2286.
const numberDigits = 16

// numberMark comes before the digits.
const numberMark = "n="

// withNumber is a path with the parameter, all digits 0.
func withNumber(path string) string {
	separator := "?"
	if strings.Contains(path, "?") {
		separator = "&"
	}
	return path + separator + numberMark + strings.Repeat("0", numberDigits)
}

// numberIn is where the digits end in a request for such a path.
func numberIn(request []byte) int { return bytes.Index(request, []byte(" HTTP/1.1\r\n")) }

// firstNumber is where one of several loops begins, each of which goes on by their
// count.
func firstNumber(began time.Time, loop int) uint64 {
	return uint64(began.UnixMicro()) + uint64(loop)
}

// writeNumber writes a number as the last digits of p.
func writeNumber(p []byte, number uint64) {
	for i := range numberDigits {
		p[len(p)-1-i] = byte('0' + number%10)
		number /= 10
	}
}
