"""Plans and configs as files: Parquet and TOML."""
