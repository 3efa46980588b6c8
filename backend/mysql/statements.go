package mysql

// Every statement of this backend is in this file, under the name of the index
// that serves it.

// ---- Publish ----------------------------------------------------------------

const ()

// ---- Delivery ---------------------------------------------------------------
