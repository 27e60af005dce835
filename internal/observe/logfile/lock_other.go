//go:build !unix

package logfile

import "os"

// canRotate is false: an open file cannot be renamed.
const canRotate = false

func openFlags(string) int { return os.O_APPEND | os.O_CREATE | os.O_WRONLY }

func lock(*os.File) {}

func tryExclusive(*os.File) bool { return true }

func exclusive(*os.File) {}

func unlock(*os.File) {}
