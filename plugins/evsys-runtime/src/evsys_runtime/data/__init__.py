"""The data room: files to rows, rows through transforms, rows to typed values, and datasets that needn't fit in memory."""
