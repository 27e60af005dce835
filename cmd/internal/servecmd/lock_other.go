//go:build !unix

package servecmd

import "os"

func lock(*os.File) {}
