// Package large holds the whole program to contents of many megabytes: they come back
// whole on every path, or are refused by name.
package large
