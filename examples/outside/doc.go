// Package outside is another module's use of every package that Millrace gives to
// other programs: if its test compiles and passes, programs out there do.
package outside
