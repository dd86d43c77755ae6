"""What running on a Slurm cluster means: the site, its jobs, the manifest on the shared folder. Pure."""
